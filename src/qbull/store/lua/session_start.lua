-- session_start: store a new session. `sessions` lists all of them, so that they can be ended together.
-- KEYS  base
-- NAMES sessions
-- USES  clock
-- FLAGS allow-oom
-- ARGV  name until_ms:int idle_ms:int session
local ttl_ms = math.max(math.min(idle_ms, until_ms - now_ms), 1)
redis.call('SET', base .. 'session:' .. name, until_ms .. '\n' .. session, 'PX', ttl_ms)
redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now_ms)
redis.call('ZADD', sessions, until_ms, name)
redis.call('PEXPIREAT', sessions, redis.call('ZRANGE', sessions, -1, -1, 'WITHSCORES')[2])
return 1
