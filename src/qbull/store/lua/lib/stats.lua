-- stats: totals, and counts per minute that expire after a day.
-- NEEDS base
-- NAMES stats
-- USES  clock
-- COMMIT write_counts
local counted = {}

local function count_up(what, n) counted[what] = (counted[what] or 0) + n end

local function write_counts()
  local minute
  for what, n in pairs(counted) do
    if n > 0 then
      minute = minute or base .. 'stats:' .. math.floor(now_ms / 60000)
      redis.call('HINCRBY', stats, what, n)
      if redis.call('HINCRBY', minute, what, n) == n then redis.call('EXPIRE', minute, 90000) end
    end
  end
end
