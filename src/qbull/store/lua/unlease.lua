-- unlease: give a partition back, if the worker still has it.
-- KEYS  base
-- NAMES lease
-- FLAGS allow-oom
-- ARGV  worker
-- GIVES 1 if it had it
if redis.call('HGET', lease, 'owner') ~= worker then return 0 end
return redis.call('HDEL', lease, 'owner', 'since') > 0 and 1 or 0
