-- move_layout: change the layout of a queue, unless it has changed in the meantime. All workers are woken up.
-- KEYS  base
-- NAMES settings
-- USES  tell_queue
-- FLAGS allow-oom
-- ARGV  was now
--       was: the layout before, empty if there was none
-- GIVES 1 if it was changed
if (redis.call('HGET', settings, 'layout') or '') ~= was then return 0 end
redis.call('HSET', settings, 'layout', now)
tell_queue('layout')
return 1
