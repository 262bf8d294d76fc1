-- set_flag: set a flag for a while: a client waits for a result, an operation must stop, a write is being
-- confirmed. It is a script for the same reason as register.
-- KEYS  name
-- FLAGS allow-oom
-- ARGV  seconds:int
redis.call('SET', name, '1', 'EX', seconds)
return 1
