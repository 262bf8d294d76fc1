-- promote: move delayed jobs whose time has come to ready. One that held its lane goes first in it, another joins its end.
-- What else time brings is done with it: jobs that have not begun in time are cancelled, finished ones that are old go.
-- KEYS  base
-- NAMES index delayed lanes trains bands kept schedules expiring cancelling stats
-- USES  clock stamp record report index tell ready train lane delivery extras finish mark take stats
-- FLAGS allow-oom
-- ARGV  limit:int most:int completed_ms:int failed:int failed_ms:int ending
--       ending: what to seal behind the record of a job that has expired
-- GIVES how many were moved, and the milliseconds until the next is due, and the next schedule (-1: none)
local over = redis.call('ZRANGE', expiring, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
if #over > 0 then
  in_chunks('ZREM', expiring, over)
  look_up(over)
  for _, id in ipairs(over) do
    local place = place_of(id)
    local record = place and not string.find('cfx', string.sub(place, 1, 1), 1, true) and take_waiting(id, place)
    if record then
      finish_cancelled(id, record, ending)
      forget(id) -- until write_finished says where it is
    end
  end
  write_taken()
  write_finished()
  if stopped[1] then
    count_up({cancelled = #stopped})
    if redis.call('EXISTS', base .. 'waiters') == 1 then tell('done', table.concat(stopped, '\n')) end
  end
end
local due = redis.call('ZRANGE', delayed, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
if #due > 0 then
  local records = records_of(due)
  in_chunks('ZREM', delayed, due)
  for i, id in ipairs(due) do
    local record = records[i]
    if record == '' then
      forget(id)
    elseif holds_lane(record) then
      add_ready(band_of(record), id, record)
    else
      admit(id, record)
    end
  end
  write_index()
  write_lanes()
end
trim('completed', -1, completed_ms, 100)
trim('failed', -1, failed_ms, 100)
trim('cancelled', -1, failed_ms, 100)
local function until_next(name)
  local head = redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')
  if not head[1] or head[2] == 'inf' then return -1 end
  return math.max(math.ceil(tonumber(head[2]) - now_ms), 0)
end
local next_due, next_end = until_next(delayed), until_next(expiring)
if next_due < 0 or (next_end >= 0 and next_end < next_due) then next_due = next_end end
return {#due, next_due, until_next(schedules)}
