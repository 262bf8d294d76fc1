-- group_change: add jobs to a group, or take them out of it. A group without jobs is deleted. The same call
-- sent again changes nothing.
-- KEYS  base
-- NAMES groups
-- ARGV  group seconds:int … id queue
--       seconds: how long the group is kept after this change; queue: of the job, '' to take it out
local members = base .. 'group:' .. group
for i = rest, #ARGV, 2 do
  if ARGV[i + 1] ~= '' then
    redis.call('HSET', members, ARGV[i], ARGV[i + 1])
  else
    redis.call('HDEL', members, ARGV[i])
  end
end
if redis.call('EXISTS', members) == 1 then
  redis.call('EXPIRE', members, seconds)
  redis.call('SADD', groups, group)
  redis.call('EXPIRE', groups, seconds)
else
  redis.call('SREM', groups, group)
end
return 1
