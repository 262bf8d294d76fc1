-- used_levels: the levels of the ready streams that a partition may have.
-- NEEDS base
-- USES  record_layout
local function used_levels()
  local list = {'0', '5'}
  if redis.call('EXISTS', base .. 'ready:' .. UNPARKED_BAND) == 1 then list[#list + 1] = UNPARKED_BAND end
  for _, level in ipairs(redis.call('SMEMBERS', base .. 'bands')) do list[#list + 1] = level end
  return list
end
