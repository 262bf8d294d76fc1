-- queue_hold: let nothing of a queue begin for a while, because a task was told to come back later. A longer
-- hold stays.
-- KEYS  base
-- NAMES hold
-- USES  tell_queue
-- FLAGS allow-oom
-- ARGV  ms:int why
-- GIVES 1 where it is the longest
if redis.call('PTTL', hold) >= ms then return 0 end
redis.call('SET', hold, why, 'PX', ms)
tell_queue('settings')
return 1
