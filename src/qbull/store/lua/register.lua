-- register: write down what programs say of a queue, its tasks and its schedules, and where a schedule is; or
-- a token.
-- A script and no plain command, which a full server would refuse: then no worker could start that empties
-- it.
-- KEYS  name
-- FLAGS allow-oom
-- ARGV  … field value
for from = 1, #ARGV, 2000 do redis.call('HSET', name, unpack(ARGV, from, math.min(from + 1999, #ARGV))) end
return 1
