-- used_bands: the bands of the ready streams that a partition may have.
-- NEEDS base
-- USES  record_layout
local function used_bands()
  local list = {'0', '5', UNPARKED_BAND}
  for _, band in ipairs(redis.call('SMEMBERS', base .. 'bands')) do list[#list + 1] = band end
  return list
end
