-- unique: put jobs into a partition, of which only one for each name counts within its window.
-- KEYS  base
-- NAMES index delayed lanes trains bands stats kept
-- USES  clock stamp record index tell ready train lane delivery take stats
-- ARGV  limit:int  … id when record name mode window_ms
--       when: milliseconds from now, or @ and a moment in milliseconds
-- GIVES for each the id of the job that counts, and 1 where it is new
local soonest, soonest_id

local function arrive(id, when, record)
  local at = string.match(when, '^@(.*)')
  local delay = at and tonumber(at) - now_ms or tonumber(when)
  if delay <= 0 then
    admit(id, record)
    return
  end
  redis.call('ZADD', delayed, at and tonumber(at) or next_ms + delay, id)
  put(id, 'd' .. stamped(record))
  if not soonest or delay < soonest then soonest, soonest_id = delay, id end
end

-- The old job with the new one's priority and body: it keeps its lane, its crashes, and the time it came.
local function renewed(old, new)
  return string.sub(old, 1, 1) .. string.sub(new, 2, 2) .. string.sub(old, 3, 11 + string.byte(old, 11))
    .. string.sub(new, 12 + string.byte(new, 11))
end

-- Give a job that waits the newer arguments. Not one that a worker has, or that has finished.
local function renew(id, place, record)
  local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
  if kind == 'd' then
    put(id, 'd' .. renewed(at, record))
  elseif kind == 'l' then
    write_joining()
    local train = train_of(id, lane_of(at))
    if train and handed_over(train) then return false end
    put(id, 'l' .. renewed(at, record))
  elseif kind == 'r' and not handed_over(at) then
    local stream, entry = base .. 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
    local old = stamped(redis.call('XRANGE', stream, entry, entry)[1][2][2], entry)
    redis.call('XDEL', stream, entry)
    add_ready(band_of(record), id, renewed(old, record), entry)
  else
    return false
  end
  return true
end

local answer, added = {}, 0
for i = rest, #ARGV, 6 do
  local id, when, record, mode = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local name, window_ms = base .. 'unique:' .. ARGV[i + 3], ARGV[i + 5]
  local counts_now = redis.call('GET', name)
  local ids = {id, counts_now or nil}
  for _, one in ipairs(ids) do
    if place_of(one) == false then look_up({one}) end
  end
  local place = counts_now and place_of(counts_now)
  local is_new = counts_now == id or place_of(id)
  if is_new then -- it was sent before
    counts_now = id
  elseif counts_now and mode == 'first' then
    is_new = false
  elseif place and mode == 'debounce' and string.sub(place, 1, 1) == 'd' then
    renew(counts_now, place, record)
    redis.call('ZADD', delayed, next_ms + tonumber(window_ms), counts_now)
    redis.call('PEXPIRE', name, window_ms)
  elseif place and mode ~= 'debounce' and renew(counts_now, place, record) then
    if mode == 'after' then redis.call('PEXPIRE', name, window_ms) end
  else
    arrive(id, mode == 'debounce' and window_ms or when, record)
    redis.call('SET', name, id, 'PX', window_ms)
    counts_now, is_new, added = id, true, added + 1
  end
  answer[#answer + 1] = counts_now
  answer[#answer + 1] = is_new and 1 or 0
end
write_index()
write_lanes()
count_up({enqueued = added})
if soonest and redis.call('ZRANGE', delayed, 0, 0)[1] == soonest_id then tell('bell', 'due') end
return answer
