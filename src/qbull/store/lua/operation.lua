-- operation: store the progress of an operation. A limited number is kept, for a while.
-- KEYS  base
-- NAMES operations
-- FLAGS allow-oom
-- ARGV  id started_ms:int kept_ms:int most:int what
-- GIVES 1 if a user has asked it to stop
redis.call('SET', base .. 'operation:' .. id, what, 'PX', kept_ms)
redis.call('ZADD', operations, started_ms, id)
for _, old in ipairs(redis.call('ZRANGE', operations, 0, -most - 1)) do
  redis.call('PEXPIRE', base .. 'operation:' .. old, 60000) -- a running one is written again before that
end
redis.call('ZREMRANGEBYRANK', operations, 0, -most - 1)
redis.call('PEXPIRE', operations, kept_ms)
return redis.call('EXISTS', base .. 'operation:' .. id .. ':stop')
