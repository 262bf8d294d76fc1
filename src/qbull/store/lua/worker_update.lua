-- worker_update: replace the registration of a worker, unless it has changed since it was read or the worker
-- was forgotten. All workers are woken up.
-- KEYS  base
-- NAMES roster
-- USES  tell_all
-- FLAGS allow-oom
-- ARGV  worker before what
-- GIVES 1 if it was replaced
if redis.call('HGET', roster, worker) ~= before then return 0 end
redis.call('HSET', roster, worker, what)
tell_all('workers')
return 1
