-- bury: forget a dead worker whose deliveries have all been taken back; one that has come back to life stays.
-- KEYS  base
-- NAMES workers roster
-- USES  clock tell_all
-- FLAGS allow-oom
-- ARGV  worker certain:int
-- GIVES 1 where it was forgotten
local until_ms = redis.call('ZSCORE', workers, worker)
if until_ms and certain == 0 and tonumber(until_ms) > now_ms then return 0 end
local known = redis.call('ZREM', workers, worker) + redis.call('HDEL', roster, worker)
if known > 0 then tell_all('workers') end
return math.min(known, 1)
