-- move_announce_lanes: these lanes have jobs in older partitions. When all of them have been told, only these
-- are held from then on.
-- Who comes too late with it changes nothing.
-- KEYS  base
-- NAMES index ahead
-- FLAGS allow-oom
-- ARGV  all:int  … lane
--       all: 1 where none are to come
-- GIVES 1 where it was still to be learnt
if redis.call('HGET', index, '\n') then return 0 end
if #ARGV >= rest then redis.call('SADD', ahead, unpack(ARGV, rest)) end
if all == 1 then redis.call('HSET', index, '\n', 'known') end
return 1
