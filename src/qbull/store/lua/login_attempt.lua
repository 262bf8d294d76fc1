-- login_attempt: count an attempt to log in. A wrong password counts before it is answered, so that parallel
-- attempts count too. A right one does not count. If many addresses guess at the same time, each of them has
-- fewer attempts; an address without wrong ones is never refused.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  address right:int most:int within:int most_of_all:int within_of_all:int most_of_many:int
-- GIVES the seconds to wait, 0 if it may be answered
local function count(name, seconds)
  if right == 1 then return tonumber(redis.call('GET', name) or 0) end
  local tries = redis.call('INCR', name)
  if tries == 1 then redis.call('EXPIRE', name, seconds) end
  return tries - 1
end
local own = base .. 'tries:' .. address
local failed = count(own, within)
local allowed = most
if count(base .. 'tries', within_of_all) >= most_of_all then allowed = most_of_many end
return failed >= allowed and math.max(redis.call('TTL', own), 1) or 0
