-- holds: does this server have deliveries as their worker has them? After a failover it may know less.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index trains
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
  local stream, entry = base .. 'ready:' .. string.sub(place, 1, 1), string.sub(place, 2)
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1, worker)
  if pending.err or not pending[1] then
    words[#words + 1] = 'gone'
  else
    words[#words + 1] = found == state and 'held' or 'changed'
  end
end
return words
