-- queue_hold: start no jobs of a queue for a while, because a task asked for it. A hold that lasts longer
-- stays.
-- KEYS  base
-- NAMES hold
-- USES  tell_queue
-- FLAGS allow-oom
-- ARGV  ms:int why
-- GIVES 1 if this hold is the longest
if redis.call('PTTL', hold) >= ms then return 0 end
redis.call('SET', hold, why, 'PX', ms)
tell_queue('settings')
return 1
