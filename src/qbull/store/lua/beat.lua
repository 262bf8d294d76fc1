-- beat: these workers live; who does not?
-- KEYS  base
-- NAMES workers
-- USES  clock
-- FLAGS allow-oom
-- ARGV  ttl_ms:int  … worker
-- GIVES the workers that said nothing for their whole time
for i = rest, #ARGV do redis.call('ZADD', workers, now_ms + ttl_ms, ARGV[i]) end
return redis.call('ZRANGE', workers, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)
