-- session_start: somebody has logged in. `sessions` knows all that there are, so that they can be ended
-- together.
-- KEYS  base
-- NAMES sessions
-- USES  clock
-- FLAGS allow-oom
-- ARGV  name until_ms:int idle_ms:int session
redis.call('SET', base .. 'session:' .. name, until_ms .. '\n' .. session, 'PX', math.max(math.min(idle_ms, until_ms - now_ms), 1))
redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now_ms)
redis.call('ZADD', sessions, until_ms, name)
redis.call('PEXPIREAT', sessions, redis.call('ZRANGE', sessions, -1, -1, 'WITHSCORES')[2])
return 1
