-- unlease: a worker gives a partition back, if it is still its own.
-- KEYS  base
-- NAMES lease
-- FLAGS allow-oom
-- ARGV  worker
-- GIVES 1 where it was
if redis.call('HGET', lease, 'owner') ~= worker then return 0 end
return redis.call('HDEL', lease, 'owner', 'since') > 0 and 1 or 0
