-- register: store what programs declare: a queue, its tasks and schedules, and the location of a schedule; or
-- a token. It is a script because a full server would refuse a plain command, and then no worker could start
-- that empties it.
-- KEYS  name
-- FLAGS allow-oom
-- ARGV  … field value
for from = 1, #ARGV, 2000 do redis.call('HSET', name, unpack(ARGV, from, math.min(from + 1999, #ARGV))) end
return 1
