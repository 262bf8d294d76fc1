-- worker_register: a worker says what it is and what it reads. Everybody is told when that is new.
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
