-- alone: a suspect is about to run. Should it take the worker down, this mark is the proof.
-- KEYS  base
-- NAMES extras
-- FLAGS allow-oom
-- ARGV  id place
redis.call('SADD', extras, id)
redis.call('HSET', base .. 'job:' .. id, 'alone', place)
return 1
