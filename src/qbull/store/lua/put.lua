-- put: enqueue for the usual kind of batch: jobs that run now, without lane, priority and reports, whose ids
-- are all different.
-- KEYS  base
-- NAMES index stats
-- ARGV  … id record
-- GIVES 1; or 0, and nothing is added, if one of them is already there or the partition is closed. Call
--       enqueue then

local ids = {'\n'} -- the partition's mark: one more field costs next to nothing
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', index, unpack(ids))
if known[1] and string.sub(known[1], 1, 6) == 'closed' then return 0 end
for i = 2, #known do
  if known[i] then return 0 end
end

local stream, many, entry = base .. 'ready:5', #ARGV / 2, nil
for i = 1, #ARGV, 2 do
  entry = redis.call('XADD', stream, '*', ARGV[i], ARGV[i + 1])
  ARGV[i + 1] = 'r5' .. entry -- its place, instead of its record
end
redis.call('HSET', index, unpack(ARGV))
local minute = base .. 'stats:' .. math.floor(tonumber(string.match(entry, '^%d+')) / 60000)
redis.call('HINCRBY', stats, 'enqueued', many)
if redis.call('HINCRBY', minute, 'enqueued', many) == many then redis.call('EXPIRE', minute, 90000) end
return 1
