-- unhold: no older partition has jobs of these lanes any more: they go on here.
-- KEYS  base
-- NAMES index delayed lanes trains bands held ahead
-- USES  clock stamp record index tell ready train lane
-- FLAGS allow-oom
-- ARGV  limit:int  … lane
local freed = {}
for i = rest, #ARGV do
  redis.call('SREM', ahead, ARGV[i])
  if redis.call('SREM', held, ARGV[i]) == 1 then freed[#freed + 1] = ARGV[i] end
end
load_lanes(freed)
release(freed)
write_index()
write_lanes()
return #freed
