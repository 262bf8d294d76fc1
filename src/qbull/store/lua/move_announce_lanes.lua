-- move_announce_lanes: announce lanes that have jobs in older partitions. Once all are announced, only these
-- are held. An announcement that comes later changes nothing.
-- KEYS  base
-- NAMES index ahead
-- FLAGS allow-oom
-- ARGV  all:int  … lane
--       all: 1 with the last lanes
-- GIVES 1 if the announcement was still open, else 0
if redis.call('HGET', index, '\n') then return 0 end
if #ARGV >= rest then redis.call('SADD', ahead, unpack(ARGV, rest)) end
if all == 1 then redis.call('HSET', index, '\n', 'known') end
return 1
