-- set_flag: something is so for a while: a result is waited for, an operation is to stop, a write is being
-- confirmed.
-- A script for the same reason as register.
-- KEYS  name
-- FLAGS allow-oom
-- ARGV  seconds:int
redis.call('SET', name, '1', 'EX', seconds)
return 1
