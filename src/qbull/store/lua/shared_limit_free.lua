-- shared_limit_free: free the slots of workers that are gone, and wake up the workers that wait for one or
-- behind one of them. The weight that their jobs have started stays spent.
-- KEYS  base
-- NAMES active holders gone
-- USES  shared_limit tell_queue
-- FLAGS allow-oom
-- ARGV  … worker
-- GIVES how many had any
local LINE_SECONDS = 10 -- longer than an entry of a line is valid
local freed = 0
for i = rest, #ARGV do
  for key, count in pairs(slots_of(ARGV[i])) do
    if redis.call('HINCRBY', active, key, -count) <= 0 then redis.call('HDEL', active, key) end
  end
  freed = freed + redis.call('HDEL', holders, ARGV[i])
  redis.call('HSET', gone, ARGV[i], 1)
end
redis.call('EXPIRE', gone, LINE_SECONDS)
tell_queue('room')
return freed
