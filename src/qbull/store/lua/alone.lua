-- alone: a suspect is about to run. Should it take the worker down, this mark is the proof. One that has ended meanwhile, in the hands
-- of another worker, gets none: nobody would remove it.
-- KEYS  base
-- NAMES index extras
-- FLAGS allow-oom
-- ARGV  id place
local at = redis.call('HGET', index, id)
if not at or string.find('cfx', string.sub(at, 1, 1), 1, true) then return 0 end
redis.call('SADD', extras, id)
redis.call('HSET', base .. 'job:' .. id, 'alone', place)
return 1
