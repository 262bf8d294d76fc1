-- limit_free_slots: free the slots of workers that are gone, and wake up the workers that wait for one.
-- KEYS  base
-- NAMES places
-- USES  tell_queue
-- FLAGS allow-oom
-- ARGV  … worker
-- GIVES how many had any
local gone = redis.call('HDEL', places, unpack(ARGV, rest))
if gone > 0 and redis.call('EXISTS', places) == 1 then tell_queue('room') end
return gone
