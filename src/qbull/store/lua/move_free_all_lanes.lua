-- move_free_all_lanes: free all held lanes, because no older partition has jobs of this partition's lanes.
-- KEYS  base
-- NAMES index held ahead
-- USES  index lane next_jobs
-- FLAGS allow-oom
-- ARGV  limit:int most:int
-- GIVES how many lanes were freed, and how many are still held; call it again until there are none
if not is_closed() then redis.call('HSET', index, MARK, 'clear') end
redis.call('UNLINK', ahead)
local freed = redis.call('SPOP', held, most)
load_lanes(freed)
for _, lane in ipairs(freed) do free_lane(lane) end
commit()
return {#freed, redis.call('SCARD', held)}
