-- promote: move delayed jobs whose time has come to ready. One that held its lane goes first in it, another joins its end.
-- The other thing that time brings is done with it: finished jobs that are old enough go.
-- KEYS  base
-- NAMES index delayed lanes trains bands kept
-- USES  clock stamp record index tell ready train lane extras finish
-- FLAGS allow-oom
-- ARGV  limit:int most:int completed_ms:int failed_ms:int
-- GIVES how many were moved, and the milliseconds until the next is due (-1: none)
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
local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
if not head[1] then return {#due, -1} end
return {#due, math.max(math.ceil(tonumber(head[2]) - now_ms), 0)}
