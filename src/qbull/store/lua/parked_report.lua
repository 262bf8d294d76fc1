-- parked_report: what the parked jobs of a partition need, how many there are of each kind, and since when.
-- KEYS  base
-- FLAGS no-writes
-- NAMES parked
-- ARGV  most:int
-- GIVES need, number of jobs, id of the oldest, since when it is parked in ms …; of `most` needs
local found = {}
for _, need in ipairs(redis.call('SRANDMEMBER', parked, most)) do
  local list = base .. 'parked:' .. need
  local oldest = redis.call('ZRANGE', list, 0, 0, 'WITHSCORES')
  if oldest[1] then
    found[#found + 1] = need
    found[#found + 1] = redis.call('ZCARD', list)
    found[#found + 1] = oldest[1]
    found[#found + 1] = oldest[2]
  end
end
return found
