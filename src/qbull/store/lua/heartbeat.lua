-- heartbeat: these workers live; who does not?
-- KEYS  base
-- NAMES workers truce
-- USES  clock alive
-- FLAGS allow-oom
-- ARGV  ttl_ms:int  … worker
-- GIVES the workers that said nothing for their whole time; none while there is a truce
for i = rest, #ARGV do alive(ARGV[i], ttl_ms) end
if redis.call('EXISTS', truce) == 1 then return {} end
return redis.call('ZRANGE', workers, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)
