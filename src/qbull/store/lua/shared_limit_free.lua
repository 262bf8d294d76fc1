-- shared_limit_free: free the slots of workers that are gone, and wake up the workers that wait for one. The
-- weight that their jobs have started stays spent.
-- KEYS  base
-- NAMES active holders
-- USES  shared_limit tell_queue
-- FLAGS allow-oom
-- ARGV  … worker
-- GIVES how many had any
local gone = 0
for i = rest, #ARGV do
  for key, count in pairs(slots_of(ARGV[i])) do
    if redis.call('HINCRBY', active, key, -count) <= 0 then redis.call('HDEL', active, key) end
    redis.call('HDEL', line_name(key), ARGV[i])
  end
  gone = gone + redis.call('HDEL', holders, ARGV[i])
end
if gone > 0 then tell_queue('room') end
return gone
