-- settle: write down what became of a batch of deliveries. One that is no longer the worker's is refused.
-- KEYS  base
-- NAMES index parked delayed lanes bands stats
-- USES  clock record index tell ready lane delivery finish stats
-- FLAGS allow-oom
-- ARGV  limit:int halt:int completed:int completed_ms:int failed:int failed_ms:int  … place id word last record detail
--       place is <band><entry>; last is 1 for the last job of its entry; detail is the ending, for "delay" milliseconds
--       word: "done", "dead", "delay"
-- GIVES the positions (from 0) of the stale ones
local ids, known_lanes, is_known = {}, {}, {}
for i = rest, #ARGV, 6 do
  ids[#ids + 1] = ARGV[i + 1]
  local lane = lane_of(ARGV[i + 4])
  if lane and not is_known[lane] then
    is_known[lane] = true
    known_lanes[#known_lanes + 1] = lane
  end
end
look_up(ids)
load_lanes(known_lanes)

local stale, freed = {}, {}
local counted = {completed = 0, failed = 0, retried = 0}
local rings, extras = false, {}
for i = rest, #ARGV, 6 do
  local place, id, word, last = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local record, detail = ARGV[i + 4], ARGV[i + 5]
  local band, entry = string.sub(place, 1, 1), string.sub(place, 2)
  if place_of(id) ~= 'r' .. place and not (word == 'dead' and is_foreign(band, entry, id, record)) then
    stale[#stale + 1] = (i - rest) / 6
  else
    local lane = is_record(record) and lane_of(record)
    local held = word == 'delay' or (word == 'dead' and halt == 1 and lane)
    local others
    if lane and held and not last then others = unsettled(band, entry) end
    if word == 'done' then
      counted.completed = counted.completed + 1
      if completed == 0 then
        forget(id)
        extras[#extras + 1] = base .. 'job:' .. id
      else
        finish('completed', 'c', id, record, detail)
      end
    elseif word == 'dead' then
      counted.failed = counted.failed + 1
      if lane then record = holding(record, held) end
      finish('failed', 'f', id, record, detail)
    else
      counted.retried = counted.retried + 1
      if lane then record = holding(record, true) end
      local delay = tonumber(detail)
      if delay > 0 then
        redis.call('HSET', parked, id, record)
        redis.call('ZADD', delayed, now_ms + delay, id)
        put(id, 'd')
        rings = rings or redis.call('ZRANGE', delayed, 0, 0)[1] == id
      else
        add_ready(band_of(record), {id, record})
      end
    end
    if others then
      table.remove(others, 1)
      table.remove(others, 1)
      back_to_lane(lane, others)
    end
    if lane and not held then
      counts[lane] = lane_count(lane) - 1
      if last then freed[#freed + 1] = lane end
    end
    if last or held then leave(band, entry) end
  end
end
for _, lane in ipairs(freed) do
  if lane_count(lane) > 0 then release(lane) end
end
if #extras > 0 then redis.call('UNLINK', unpack(extras)) end
write_leaving()
write_index()
write_lanes()
count_up(counted)
if completed ~= 0 and counted.completed > 0 then trim('completed', completed, completed_ms, 1000) end
if counted.failed > 0 then trim('failed', failed, failed_ms, 1000) end
if rings then tell('bell', 'due') end
if counted.completed + counted.failed > 0 and redis.call('EXISTS', base .. 'waiters') == 1 then
  tell('done', table.concat(ids, '\n'))
end
return stale
