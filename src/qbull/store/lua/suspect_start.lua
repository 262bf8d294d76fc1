-- suspect_start: a suspect is about to run. Should it take the worker down, this mark is the proof. One that
-- is in the hands of another
-- worker by now, or has ended there, gets none: nobody would remove it.
-- KEYS  base
-- NAMES index extras
-- FLAGS allow-oom
-- ARGV  id place
-- GIVES 1, or 0 where it is not to run
local at = redis.call('HGET', index, id)
if not at or at ~= 'r' .. place and string.sub(at, 1, 1) ~= 'l' then return 0 end -- l: it is in a train
redis.call('SADD', extras, id)
redis.call('HSET', base .. 'job:' .. id, 'alone', place)
return 1
