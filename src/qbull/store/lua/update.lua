-- update: give a job that has not started other arguments. A job that already stands in front of the workers
-- goes to the end of its priority. A parked job is tried again.
-- KEYS  base
-- NAMES delayed
-- USES  stamp record_layout record msgpack report index ready lane state idempotent parked parking
-- FLAGS allow-oom
-- ARGV  token limit:int id task payload
--       task, payload: its task and its new arguments, as the body of a record has them
-- GIVES "updated" and its state; or "unknown", "moving" (to another partition just now), "other" (the id
--       belongs to a job of another task), or the state that it is in instead
local before = answered(token)
if before then return before end

-- The record with the new arguments; nil if it is not a record of this task.
local function with_payload(record)
  if not is_record(record) then return nil end
  local from = first_value(record, body_at(record))
  local at = behind_value(record, from)
  if string.sub(record, from, at - 1) ~= task then return nil end
  return string.sub(record, 1, at - 1) .. payload .. string.sub(record, behind_value(record, at))
end

look_up({id})
local place = place_of(id)
if not place then return 'unknown' end
local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
if kind == 'm' then return 'moving' end
if not string.find('rld', kind, 1, true) then return state_at(id, place) end
local state, record = 'waiting', nil
if kind == 'r' then
  if handed_over(at) then return 'active' end
  local stream, entry = base .. 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
  record = with_payload(stamped(redis.call('XRANGE', stream, entry, entry)[1][2][2], entry))
  if not record then return 'other' end
  redis.call('XDEL', stream, entry)
  add_ready(string.sub(at, 1, 1), id, record, entry)
else
  record = with_payload(at)
  if not record then return 'other' end
  if kind == 'l' then
    local train = train_of(id, lane_of(at))
    if train and handed_over(train) then return 'active' end
    put(id, 'l' .. record)
  elseif is_parked(id) then
    leave_parking(id)
    redis.call('ZREM', delayed, id)
    if holds_lane(record) then add_ready(level_of(record), id, record) else admit(id, record) end
  else
    state = 'delayed'
    put(id, 'd' .. record)
  end
end
report(state == 'waiting' and 'w' or 'd', id, record, REPORT_ALL_FLAG)
commit()
return answer(token, true, {'updated', state})
