-- unfinished: some of the unfinished jobs of a partition. A job that is there from the first call to the last
-- is returned at least once.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index
-- USES  describe
-- ARGV  cursor count:int state
--       state: "waiting", "active" or "delayed"; "queued" for the first and the last of them
-- GIVES the next cursor ("0": that was all), how many were looked at, and for each that is in the state: id,
--       record, due time or entry, worker, when that worker got it (in ms, else 0), the start of its
--       place: r<level> before the entry, l or d before the record; and its state
local found = redis.call('HSCAN', index, cursor, 'COUNT', count)
local flat, answer = found[2], {found[1], #found[2] / 2}
local both = state == 'queued'
local kinds = state == 'delayed' and 'dm' or state == 'waiting' and 'rld' or both and 'rldm' or 'rl'
for i = 1, #flat, 2 do
  local id, place = flat[i], flat[i + 1]
  if string.find(kinds, string.sub(place, 1, 1), 1, true) then
    local seen = describe(id, place)
    if seen[1] == state or (both and seen[1] ~= 'active') then
      local n = #answer
      answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = id, seen[2], seen[3], seen[4]
      answer[n + 5] = seen[5]
      answer[n + 6] = string.sub(place, 1, string.sub(place, 1, 1) == 'r' and 2 or 1)
      answer[n + 7] = seen[1]
    end
  end
end
return answer
