-- promote: move delayed jobs whose time has come to ready. One that held its lane goes first in it, another joins its end.
-- The other thing that time brings is done with it: finished jobs that are old enough go.
-- KEYS  base
-- NAMES index delayed lanes trains bands kept schedules
-- USES  clock stamp record index tell ready train lane extras finish
-- FLAGS allow-oom
-- ARGV  limit:int most:int completed_ms:int failed_ms:int
-- GIVES how many were moved, and the milliseconds until the next is due, and the next schedule (-1: none)
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
return {#due, until_next(delayed), until_next(schedules)}
