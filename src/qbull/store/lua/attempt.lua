-- attempt: a password is about to be tried. It counts before it is looked at, so that many at once count too.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  address most:int within:int most_of_all:int within_of_all:int
-- GIVES the seconds to wait, 0 where it may be tried
local function over(name, allowed, seconds)
  local tries = redis.call('INCR', name)
  if tries == 1 then redis.call('EXPIRE', name, seconds) end
  return tries > allowed and math.max(redis.call('TTL', name), 1) or 0
end
local own = over(base .. 'tries:' .. address, most, within)
if own > 0 then return own end
return over(base .. 'tries', most_of_all, within_of_all)
