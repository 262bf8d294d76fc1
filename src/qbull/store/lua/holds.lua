-- holds: does this server have deliveries as their worker has them? After a failover it may know less.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index trains
-- USES  pending
-- ARGV  worker  … lane name state
--       a train: its lane, its place, and how far it has come (lib/train.lua)
--       a job that is alone in its entry: '', its id, and its place in the index
-- GIVES a word for each: "held", "changed" (the worker's, but it has not come so far), or "gone" (not the
--       worker's)
local words = {}
for i = rest, #ARGV, 3 do
  local lane, name, state = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local place, found
  if lane ~= '' then
    place, found = name, redis.call('HGET', trains, lane)
  else
    place, found = string.sub(state, 2), redis.call('HGET', index, name)
  end
  if is_pending_for(place, worker) then
    words[#words + 1] = found == state and 'held' or 'changed'
  else
    words[#words + 1] = 'gone'
  end
end
return words
