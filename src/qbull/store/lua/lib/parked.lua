-- parked: is a job parked? It waits for a worker whose code can run it (lib/parking.lua).
-- NEEDS base
-- USES  record_layout
local function is_parked(id)
  return redis.call('ZSCORE', base .. 'delayed', id) == PARKED_DUE
end
