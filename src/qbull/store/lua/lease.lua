-- lease: take a partition for one worker alone, unless another live worker has it.
-- KEYS  base
-- NAMES lease
-- USES  clock
-- FLAGS allow-oom
-- ARGV  worker  … living
-- GIVES the epoch, which rises with every new owner; 0 if another worker has the partition
local owner = redis.call('HGET', lease, 'owner')
if owner == worker then return tonumber(redis.call('HGET', lease, 'epoch')) end
for i = rest, #ARGV do
  if ARGV[i] == owner then return 0 end
end
redis.call('HSET', lease, 'owner', worker, 'since', now_ms)
return redis.call('HINCRBY', lease, 'epoch', 1)
