-- login_attempt: count an attempt to log in. A wrong password counts before it is answered, so that parallel
-- attempts count too. A right one does not count.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  address right:int most:int within:int most_of_all:int within_of_all:int
-- GIVES the seconds to wait, 0 if it may be answered
local function over(name, allowed, seconds)
  local tries = right == 1 and tonumber(redis.call('GET', name) or 0) + 1 or redis.call('INCR', name)
  if tries == 1 and right == 0 then redis.call('EXPIRE', name, seconds) end
  return tries > allowed and math.max(redis.call('TTL', name), 1) or 0
end
local own = over(base .. 'tries:' .. address, most, within)
if own > 0 then return own end
return over(base .. 'tries', most_of_all, within_of_all)
