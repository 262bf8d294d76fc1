-- find: the places of jobs and their details, in one call.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index
-- USES  describe
-- ARGV  … id
-- GIVES for each nothing if the job is unknown, else its progress, state, record (with the ending, if it has
--       ended), due time or entry, worker, and when that worker got it (in ms, else 0)
local found = {}
for i = rest, #ARGV do
  local id, seen = ARGV[i], {}
  local place = redis.call('HGET', index, id)
  if place then seen = describe(id, place) end
  if seen[1] then table.insert(seen, 1, redis.call('HGET', base .. 'job:' .. id, 'progress') or '') end
  found[#found + 1] = seen
end
return found
