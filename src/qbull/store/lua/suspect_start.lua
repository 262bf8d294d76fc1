-- suspect_start: mark that a suspect is about to run. If it takes the worker down, the mark is the proof. A
-- job that another worker holds by now, or that has ended, gets no mark: nobody would remove it.
-- KEYS  base
-- NAMES index extras
-- FLAGS allow-oom
-- ARGV  id place
-- GIVES 1, or 0 if it must not run
local at = redis.call('HGET', index, id)
if not at or at ~= 'r' .. place and string.sub(at, 1, 1) ~= 'l' then return 0 end -- l: it is in a train
redis.call('SADD', extras, id)
redis.call('HSET', base .. 'job:' .. id, 'alone', place)
return 1
