-- unpark: hand parked jobs to a worker whose code can run them, the oldest first. They do not go through a
-- stream that other workers read: these would hand them back. A job that left its lane while it was parked,
-- and finds no room there, waits at the head of the lane instead.
-- KEYS  base
-- NAMES delayed
-- USES  clock record_layout record index lane parking
-- FLAGS allow-oom
-- ARGV  limit:int worker most:int min_age_ms:int chosen:int  … id need
--       min_age_ms: only jobs that have been parked for so long
--       chosen: how many ids there are; then only these jobs are taken, if they still have the need
-- GIVES entry, {id, record} of each delivery
local MAX_RETURNED = 500
local stream, added, returned = base .. 'ready:' .. UNPARKED_BAND, 0, 0
local until_ms = min_age_ms == 0 and '+inf' or string.format('%.0f', now_ms - min_age_ms)

-- In a closed partition, jobs that do not hold their lane are left to the mover.
local function stays(record) return is_closed() and lane_of(record) and not holds_lane(record) end

local function take(id, record, need)
  leave_parking(id, need)
  redis.call('ZREM', delayed, id)
  local lane = not holds_lane(record) and lane_of(record)
  record = with_flag(record, RETURNS_TO_LANE_FLAG, false)
  local is_full = lane and not enter_lane(lane)
  -- A job that must have a certain age is taken to fail. It does not run, so its lane needs no room for it.
  if is_full and (min_age_ms == 0 or redis.call('SISMEMBER', base .. 'held', lane) == 1) then
    wait_in_lane(lane, id, record, true)
    returned = returned + 1
  else
    put(id, 'r' .. UNPARKED_BAND .. redis.call('XADD', stream, '*', id, record))
    added = added + 1
  end
end

local ids = {}
for i = rest, rest + chosen - 1 do
  if redis.call('ZSCORE', base .. 'parked:' .. ARGV[#ARGV], ARGV[i]) then ids[#ids + 1] = ARGV[i] end
end
for n, record in ipairs(records_of(ids)) do
  if not stays(record) then take(ids[n], record, ARGV[#ARGV]) end
end

for i = chosen > 0 and #ARGV + 1 or rest, #ARGV do
  local list, left, ids = base .. 'parked:' .. ARGV[i], 0, nil
  repeat
    local room = math.min(most - added, MAX_RETURNED - returned)
    ids = room > 0 and redis.call('ZRANGE', list, '-inf', until_ms, 'BYSCORE', 'LIMIT', left, room) or {}
    local records = records_of(ids)
    for n, id in ipairs(ids) do
      if stays(records[n]) then left = left + 1 else take(id, records[n], ARGV[i]) end
    end
  until not ids[1]
  if returned >= MAX_RETURNED then tell_parked(ARGV[i]) end
end
commit()
if added == 0 then return {} end
redis.pcall('XGROUP', 'CREATE', stream, 'workers', '0')
local found = {}
for _, entry in ipairs(redis.call('XREADGROUP', 'GROUP', 'workers', worker, 'STREAMS', stream, '>')[1][2]) do
  found[#found + 1] = entry[1]
  found[#found + 1] = entry[2]
end
return found
