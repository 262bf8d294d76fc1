-- bury: forget a dead worker whose deliveries have all been taken back; one that has come back to life stays.
-- KEYS  workers
-- USES  clock
-- FLAGS allow-oom
-- ARGV  worker certain:int
-- GIVES 1 where it was forgotten
local until_ms = redis.call('ZSCORE', workers, worker)
if not until_ms or (certain == 0 and tonumber(until_ms) > now_ms) then return 0 end
return redis.call('ZREM', workers, worker)
