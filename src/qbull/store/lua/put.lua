-- put: what enqueue does, for a batch of jobs that are to run now, have no lane and no priority, nobody asks
-- to be told, and
--       whose ids are all different. Most jobs are of this kind.
-- KEYS  base
-- NAMES index stats
-- ARGV  … id record
-- GIVES 1; or 0, and nothing is added, where one of them is there already or the partition is closed: enqueue
--       knows what to do then

local ids = {'\n'} -- what the partition says of itself: one name more costs next to nothing
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', index, unpack(ids))
if known[1] and string.sub(known[1], 1, 6) == 'closed' then return 0 end
for i = 2, #known do
  if known[i] then return 0 end
end

local stream, many, entry = base .. 'ready:5', #ARGV / 2, nil
for i = 1, #ARGV, 2 do
  entry = redis.call('XADD', stream, '*', ARGV[i], ARGV[i + 1])
  ARGV[i + 1] = 'r5' .. entry -- where it is now, in place of what it is
end
redis.call('HSET', index, unpack(ARGV))
local minute = base .. 'stats:' .. math.floor(tonumber(string.match(entry, '^%d+')) / 60000)
redis.call('HINCRBY', stats, 'enqueued', many)
if redis.call('HINCRBY', minute, 'enqueued', many) == many then redis.call('EXPIRE', minute, 90000) end
return 1
