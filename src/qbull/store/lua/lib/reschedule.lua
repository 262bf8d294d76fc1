-- reschedule: give a job that has not started another due time. A job that holds its lane keeps its place
-- there. Any other leaves its lane, and joins its end when it is due.
-- NEEDS base limit
-- NAMES delayed
-- USES  clock stamp record_layout record report index ready lane due state take parked
-- A job that is due now may run at once.
local function run_now(id, record)
  if holds_lane(record) then add_ready(level_of(record), id, record) else admit(id, record) end
  report('w', id, record, REPORT_ALL_FLAG)
  return 'waiting'
end

local function delay_until(id, record, due)
  watch(delayed, id, due)
  put(id, 'd' .. record)
  report('d', id, record, REPORT_ALL_FLAG)
  if is_closed() then tell_mover() end
  return 'delayed'
end

-- Returns its new state. If it cannot be changed: nil, and its state, "moving" (to another partition just
-- now) or "dependent" (it waits for other jobs of its flow).
local function reschedule(id, place, due)
  local kind = string.sub(place, 1, 1)
  if kind == 'm' then return nil, 'moving' end
  if not string.find('rld', kind, 1, true) then return nil, state_at(id, place) end
  local is_later = due > next_ms
  if kind ~= 'd' or is_parked(id) then
    if not is_later and kind ~= 'd' then
      local state = state_at(id, place)
      return state == 'waiting' and state or nil, state
    end
    local record = take_waiting(id, place)
    if not record then return nil, 'active' end
    record = holding(stamped(record), false)
    return is_later and delay_until(id, record, due) or run_now(id, record)
  end
  local record = string.sub(place, 2)
  if redis.call('ZSCORE', delayed, id) == NEVER_DUE then return nil, 'dependent' end
  if is_later then return delay_until(id, record, due) end
  redis.call('ZREM', delayed, id)
  return run_now(id, record)
end
