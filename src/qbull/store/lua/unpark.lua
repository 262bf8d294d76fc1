-- unpark: hand parked jobs to a worker whose code can run them, the oldest first. They do not go through a
-- stream that other workers read: these would hand them back.
-- KEYS  base
-- NAMES delayed
-- USES  clock record_layout index parking
-- FLAGS allow-oom
-- ARGV  worker most:int min_age_ms:int  … need
--       min_age_ms: only jobs that have been parked for so long
-- GIVES entry, {id, record} of each delivery
local stream, added = base .. 'ready:' .. UNPARKED_BAND, 0
for i = rest, #ARGV do
  local list, until_ms = base .. 'parked:' .. ARGV[i], string.format('%.0f', now_ms - min_age_ms)
  local ids = added < most
    and redis.call('ZRANGE', list, '-inf', until_ms, 'BYSCORE', 'LIMIT', 0, most - added) or {}
  local records = records_of(ids)
  for n, id in ipairs(ids) do
    leave_parking(id)
    redis.call('ZREM', delayed, id)
    put(id, 'r' .. UNPARKED_BAND .. redis.call('XADD', stream, '*', id, records[n]))
    added = added + 1
  end
end
if added == 0 then return {} end
commit()
redis.pcall('XGROUP', 'CREATE', stream, 'workers', '0')
local found = {}
for _, entry in ipairs(redis.call('XREADGROUP', 'GROUP', 'workers', worker, 'STREAMS', stream, '>')[1][2]) do
  found[#found + 1] = entry[1]
  found[#found + 1] = entry[2]
end
return found
