-- parking: jobs that wait for a worker whose code can run them. A parked job has the place of a delayed one
-- and is due at PARKED_DUE. If its lane has an order, it keeps its place there.
--   parked         what these jobs need (core/parking.py): a task, and the signatures that did not fit
--   parked:<need>  since when they are parked, in ms → job id
-- NEEDS base
-- USES  clock record_layout tell parked
local function park(id, need)
  redis.call('ZADD', base .. 'delayed', PARKED_DUE, id)
  redis.call('ZADD', base .. 'parked:' .. need, now_ms, id)
  redis.call('SADD', base .. 'parked', need)
  tell('bell', 'task ' .. string.match(need, '^[^\n]*'))
end

-- A job that leaves `delayed` leaves its list here first.
local function leave_parking(id)
  if not is_parked(id) then return end
  for _, need in ipairs(redis.call('SMEMBERS', base .. 'parked')) do
    local list = base .. 'parked:' .. need
    if redis.call('ZREM', list, id) == 1 and redis.call('EXISTS', list) == 0 then
      redis.call('SREM', base .. 'parked', need)
    end
  end
end
