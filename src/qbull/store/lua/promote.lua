-- promote: move due delayed jobs to ready. A job that held its lane runs next in it. A job that left its lane
-- to wait comes first in its list, any other job joins its end. In a closed partition only jobs that hold
-- their lane are moved; the others are left to the mover.
-- It also cancels expired jobs, and deletes finished jobs that are too old or too many.
-- KEYS  base
-- NAMES delayed schedules expiring
-- USES  clock record_layout record msgpack index ready lane finish cancel_mark take
-- FLAGS allow-oom
-- ARGV  limit:int most:int completed_ms:int failed:int failed_ms:int ending
-- ARGV  keep_completed:int keep_failed:int
--       ending: what to append to the record of a job that has expired
--       keep_completed, keep_failed: the number of finished jobs to keep, -1 for no limit
-- GIVES how many were moved, and the milliseconds until the next is due, and the next schedule (-1: none)
local LOOK_MS = 50
local left = false -- a due job is left to the mover
local function until_next(name, least)
  local head = redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')
  if not head[1] or head[2] == 'inf' then return -1 end
  return math.max(math.ceil(tonumber(head[2]) - now_ms), least or 0)
end

-- Whether the job at this place expires. The expiry may be that of an earlier job with the same id.
local function has_end(place)
  local record = string.sub(place, 2)
  if string.sub(place, 1, 1) == 'r' then
    local entry = string.sub(record, 2)
    local found = redis.call('XRANGE', base .. 'ready:' .. string.sub(record, 1, 1), entry, entry)[1]
    record = found and found[2][2] or ''
  end
  if not is_record(record) then return false end -- written by another program
  local at, many = first_value(record, body_at(record))
  if many < EXPIRES_VALUE then return false end -- the usual body ends with the history
  for _ = 2, HISTORY_VALUE do at = behind_value(record, at) end
  if string.byte(record, at) ~= 0x90 then return false end -- its history is not empty: it has started
  for _ = HISTORY_VALUE + 1, EXPIRES_VALUE do at = behind_value(record, at) end
  return (string.byte(record, at) or 0xc0) ~= 0xc0
end

local next_end = until_next(expiring)
if next_end == 0 then
  local seen, over = {}, redis.call('ZRANGE', expiring, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
  look_up(over)
  for _, id in ipairs(over) do
    local place = place_of(id)
    if place and string.sub(place, 1, 1) == 'm' then
      left = true
    else
      seen[#seen + 1] = id
      local unfinished = place and not string.find('cfx', string.sub(place, 1, 1), 1, true)
      local record = unfinished and has_end(place) and take_waiting(id, place)
      if record then
        finish_cancelled(id, record, ending)
        forget(id) -- until write_finished writes its new place
      end
    end
  end
  in_chunks('ZREM', expiring, seen)
end
local moved_on, next_due = {}, until_next(delayed)
if next_due == 0 then
  local due = redis.call('ZRANGE', delayed, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
  local records, closed = records_of(due), is_closed()
  for i, id in ipairs(due) do
    local record = records[i]
    if record ~= '' and holds_lane(record) then
      add_ready(level_of(record), id, record)
    elseif closed then
      left = true
      tell_mover()
    elseif record == '' then
      forget(id)
    else
      admit(id, record, has_flag(record, RETURNS_TO_LANE_FLAG))
    end
    if not closed or record ~= '' and holds_lane(record) then moved_on[#moved_on + 1] = id end
  end
  in_chunks('ZREM', delayed, moved_on)
end
commit()
trim('completed', keep_completed, completed_ms, 100)
trim('failed', keep_failed, failed_ms, 100)
trim('cancelled', keep_failed, failed_ms, 100)
local least = left and LOOK_MS
if next_end == 0 then next_end = until_next(expiring, least) end
if next_due == 0 then next_due = until_next(delayed, least) end
if next_due < 0 or (next_end >= 0 and next_end < next_due) then next_due = next_end end
return {#moved_on, next_due, until_next(schedules)}
