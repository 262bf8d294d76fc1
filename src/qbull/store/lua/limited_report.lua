-- limited_report: the shared limits that jobs of a partition wait for, how many jobs, and since when.
-- KEYS  base
-- FLAGS no-writes
-- NAMES limited
-- ARGV  most:int
-- GIVES need, number of jobs, since when the first of them waits in ms …; of `most` needs
local LEVEL_STEP = 1e13 -- of lib/parking.lua
local found = {}

-- The jobs are sorted by priority level, then by time. So the oldest one is the first of some level.
local function oldest_in(list)
  local oldest, from = nil, '-inf'
  while true do
    local head = redis.call('ZRANGE', list, from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if not head[2] then return oldest end
    local level = math.floor(tonumber(head[2]) / LEVEL_STEP)
    local since = tonumber(head[2]) - level * LEVEL_STEP
    if not oldest or since < oldest then oldest = since end
    from = string.format('%.0f', (level + 1) * LEVEL_STEP)
  end
end

for _, need in ipairs(redis.call('SRANDMEMBER', limited, most)) do
  local list = base .. 'parked:' .. need
  local jobs = redis.call('ZCARD', list)
  if jobs > 0 then
    found[#found + 1] = need
    found[#found + 1] = jobs
    found[#found + 1] = oldest_in(list)
  end
end
return found
