-- heartbeat: record that these workers are alive, and list the dead ones.
-- KEYS  base
-- NAMES workers truce
-- USES  clock alive
-- FLAGS allow-oom
-- ARGV  ttl_ms:int  … worker
-- GIVES the workers whose heartbeats have expired; none while there is a truce
for i = rest, #ARGV do alive(ARGV[i], ttl_ms) end
if redis.call('EXISTS', truce) == 1 then return {} end
return redis.call('ZRANGE', workers, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)
