-- settle: write down what became of a batch of deliveries. One that is no longer the worker's is refused.
-- KEYS  base
-- NAMES index parked delayed lanes bands stats kept
-- USES  clock stamp record index tell ready lane delivery extras finish stats
-- FLAGS allow-oom
-- ARGV  limit:int halt:int completed:int completed_ms:int failed:int failed_ms:int singles:int members:int  …
--       singles (a number of arguments): band, how many, and for each entry, id, sealed: jobs that are done and were
--         alone in their entry
--       members (likewise): place, last, how many, and for each id, sealed: jobs of a train that are done; last is 1
--         where they are the last of it
--       the others: place, id, word, last, record, detail: word is "dead", with its ending as detail, or "delay" with
--         milliseconds
--       place is <band><entry>
-- GIVES the ids of the stale ones
local stale, freed, finished = {}, {}, {}
local has_extras = redis.call('EXISTS', base .. 'extras') == 1
local counted = {completed = 0, failed = 0, retried = 0}
local members_at = rest + singles
local others_at = members_at + members

local function done(id, sealed)
  counted.completed = counted.completed + 1
  finished[#finished + 1] = id
  if completed == 0 then
    forget(id)
    if has_extras then forget_extras(id) end
  else
    finish('completed', completed, id, sealed)
  end
end

local function leave_lane(record, is_last)
  local lane = lane_of(record)
  if not lane then return end
  counts[lane] = lane_count(lane) - 1
  if is_last then freed[#freed + 1] = lane end
end

do -- one look for all lanes
  local list, seen = {}, {}
  local function note(record)
    local lane = lane_of(record)
    if lane and not seen[lane] then
      seen[lane] = true
      list[#list + 1] = lane
    end
  end
  local i = rest
  while i < members_at do
    local many = tonumber(ARGV[i + 1])
    for j = i + 4, i + 1 + 3 * many, 3 do note(ARGV[j]) end
    i = i + 2 + 3 * many
  end
  while i < others_at do
    note(ARGV[i + 4]) -- a train has one lane
    i = i + 3 + 2 * tonumber(ARGV[i + 2])
  end
  for j = others_at + 4, #ARGV, 6 do note(ARGV[j]) end
  load_lanes(list)
end

local at = rest
while at < members_at do
  local band, many = ARGV[at], tonumber(ARGV[at + 1])
  local stream, entries = base .. 'ready:' .. band, {}
  at = at + 2
  for i = 1, many do entries[i] = ARGV[at + 3 * (i - 1)] end
  -- What is still pending is the worker's: reclaim acks an entry away. Only where some are not, the index must say which.
  local doubt = redis.call('XACK', stream, 'workers', unpack(entries)) ~= many
  if doubt then
    local ids = {}
    for i = 1, many do ids[i] = ARGV[at + 3 * (i - 1) + 1] end
    look_up(ids)
  end
  for i = at, at + 3 * many - 1, 3 do
    local id, sealed = ARGV[i + 1], ARGV[i + 2]
    if doubt and place_of(id) ~= 'r' .. band .. ARGV[i] then
      stale[#stale + 1] = id
    else
      done(id, sealed)
      leave_lane(sealed, true)
    end
  end
  redis.call('XDEL', stream, unpack(entries))
  at = at + 3 * many
end

do -- the jobs of a train are all of one entry: one of them tells for all whether it is still the worker's
  local ids, i = {}, members_at
  while i < others_at do
    ids[#ids + 1] = ARGV[i + 3]
    i = i + 3 + 2 * tonumber(ARGV[i + 2])
  end
  for j = others_at, #ARGV, 6 do ids[#ids + 1] = ARGV[j + 1] end
  look_up(ids)
end
while at < others_at do
  local place, is_last, many = ARGV[at], ARGV[at + 1] == '1', tonumber(ARGV[at + 2])
  local ours = place_of(ARGV[at + 3]) == 'r' .. place
  at = at + 3
  for i = at, at + 2 * many - 1, 2 do
    if ours then done(ARGV[i], ARGV[i + 1]) else stale[#stale + 1] = ARGV[i] end
  end
  if ours then
    local lane = lane_of(ARGV[at + 1])
    counts[lane] = lane_count(lane) - many
    if is_last then
      freed[#freed + 1] = lane
      leave(string.sub(place, 1, 1), string.sub(place, 2))
    end
  end
  at = at + 2 * many
end

local rings = false
for i = others_at, #ARGV, 6 do
  local place, id, word, is_last = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local record, detail = ARGV[i + 4], ARGV[i + 5]
  local band, entry = string.sub(place, 1, 1), string.sub(place, 2)
  if place_of(id) ~= 'r' .. place and not (word == 'dead' and is_foreign(band, entry, id, record)) then
    stale[#stale + 1] = id
  else
    local lane = is_record(record) and lane_of(record)
    local held = word == 'delay' or (halt == 1 and lane)
    local others = lane and held and not is_last and unsettled(band, entry)
    record = stamped(record, entry)
    if lane then record = holding(record, held) end
    if word == 'dead' then
      counted.failed = counted.failed + 1
      finished[#finished + 1] = id
      finish('failed', failed, id, record .. detail)
    else
      counted.retried = counted.retried + 1
      local delay = tonumber(detail)
      if delay > 0 then
        redis.call('HSET', parked, id, record)
        redis.call('ZADD', delayed, next_ms + delay, id)
        put(id, 'd')
        rings = rings or redis.call('ZRANGE', delayed, 0, 0)[1] == id
      else
        add_ready(band_of(record), {id, record}, entry)
      end
    end
    if others then
      table.remove(others, 1)
      table.remove(others, 1)
      back_to_lane(lane, others)
    end
    if lane and not held then leave_lane(record, is_last) end
    if is_last or held then leave(band, entry) end
  end
end

write_bundle('completed')
write_bundle('failed')
release(freed)
write_leaving()
write_index()
write_lanes()
count_up(counted)
if completed ~= 0 and counted.completed > 0 then trim('completed', completed, completed_ms, 1000) end
if counted.failed > 0 then trim('failed', failed, failed_ms, 1000) end
if rings then tell('bell', 'due') end
if counted.completed + counted.failed > 0 and redis.call('EXISTS', base .. 'waiters') == 1 then
  tell('done', table.concat(finished, '\n'))
end
return stale
