-- move_layout: another layout for a queue, if nobody has changed it meanwhile. Everybody is told.
-- KEYS  base
-- NAMES settings
-- USES  tell_queue
-- FLAGS allow-oom
-- ARGV  was now
--       was: empty where there was none
-- GIVES 1 where it was changed
if (redis.call('HGET', settings, 'layout') or '') ~= was then return 0 end
redis.call('HSET', settings, 'layout', now)
tell_queue('layout')
return 1
