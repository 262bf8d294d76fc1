-- stats: totals, and counts for each minute that expire after a day.
-- NEEDS base
-- NAMES stats
-- USES  clock
local function count_up(counted)
  local minute = base .. 'stats:' .. math.floor(now_ms / 60000)
  for what, n in pairs(counted) do
    if n > 0 then
      redis.call('HINCRBY', stats, what, n)
      if redis.call('HINCRBY', minute, what, n) == n then redis.call('EXPIRE', minute, 90000) end
    end
  end
end
