-- move_arrive: prepare an empty partition for the jobs of another server. It accepts no others until
-- move_open.
-- KEYS  base
-- NAMES index schedules arriving
-- FLAGS allow-oom
-- ARGV  token
--       token: names the move
-- GIVES 1; or 0 if the partition has jobs or schedules of its own
if redis.call('HGET', arriving, 'token') == token then return 1 end
local has_mark = redis.call('HEXISTS', index, '\n')
if redis.call('HLEN', index) > has_mark or redis.call('EXISTS', schedules) == 1 then return 0 end
redis.call('HSET', index, '\n', 'closed arriving')
redis.call('HSET', arriving, 'token', token)
return 1
