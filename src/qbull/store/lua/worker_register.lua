-- worker_register: store what a worker is and what it reads. All workers are woken up if that has changed.
-- KEYS  base
-- NAMES roster
-- USES  alive tell_all
-- FLAGS allow-oom
-- ARGV  worker ttl_ms:int what
alive(worker, ttl_ms)
if redis.call('HGET', roster, worker) ~= what then
  redis.call('HSET', roster, worker, what)
  tell_all('workers')
end
return 1
