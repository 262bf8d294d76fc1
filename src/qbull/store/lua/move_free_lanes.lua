-- move_free_lanes: free these lanes, because no older partition has jobs of them.
-- KEYS  base
-- NAMES held ahead
-- USES  lane next_jobs
-- FLAGS allow-oom
-- ARGV  limit:int  … lane
local freed = {}
for i = rest, #ARGV do
  redis.call('SREM', ahead, ARGV[i])
  if redis.call('SREM', held, ARGV[i]) == 1 then freed[#freed + 1] = ARGV[i] end
end
load_lanes(freed)
for _, lane in ipairs(freed) do free_lane(lane) end
commit()
return #freed
