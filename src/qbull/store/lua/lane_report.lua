-- lane_report: the state of one lane: which jobs are outside its list, which wait in it, and which job holds
-- it. To find the holder it reads a limited number of dead letters, delayed and ready jobs.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed lanes failed
-- USES  record_layout record train describe used_levels lane_lists
-- ARGV  lane most:int looks:int id
--       most: how many waiting jobs to list; id: the job whose position is wanted, or ''
-- GIVES how many are admitted; how many wait in the list; the first of these; those of the train that is out,
--       in order; the holder, its state and worker, or ''; the position of the id behind the holder (from 1),
--       or 0
local waiting, first = lane_lists.length(lane), {}
for _, list in ipairs(lane_lists.all(lane)) do
  local some = #first < most and redis.call('LRANGE', list, 0, most - 1 - #first) or {}
  for _, id in ipairs(some) do first[#first + 1] = id end
end
local aboard, holder, state, worker = {}, '', '', ''

local function holds(record) return is_record(record) and lane_of(record) == lane end

local level, entry, settled = string.match(train_state(lane) or '', '^(.)(%S+) ?(%d*)$')
if level then
  aboard = ids_of_train(in_entry(base .. 'ready:' .. level, entry), tonumber(settled) or 0)
  holder = aboard[1] or ''
end

if holder == '' then
  for _, found in ipairs(redis.call('XREVRANGE', failed, '+', '-', 'COUNT', looks)) do
    for i = 1, #found[2], 2 do
      local id, record = found[2][i], found[2][i + 1]
      local may_hold = holder == '' and holds(record) and holds_lane(record)
      if may_hold and redis.call('HGET', index, id) == 'f' .. found[1] then
        holder = id
      end
    end
  end
end
if holder == '' then
  local ids = redis.call('ZRANGE', delayed, PARKED_DUE, PARKED_DUE, 'BYSCORE', 'LIMIT', 0, looks)
  for _, id in ipairs(redis.call('ZRANGE', delayed, 0, looks - 1)) do ids[#ids + 1] = id end
  local places = ids[1] and redis.call('HMGET', index, unpack(ids)) or {}
  for i, place in ipairs(places) do
    local record = place and string.sub(place, 2) or ''
    if holder == '' and holds(record) and holds_lane(record) then holder = ids[i] end
  end
end
if holder == '' then
  local streams = used_levels()
  for _, used in ipairs(streams) do
    for _, found in ipairs(redis.call('XRANGE', base .. 'ready:' .. used, '-', '+', 'COUNT', looks)) do
      if holder == '' and found[2][1] ~= '' and holds(found[2][2]) then holder = found[2][1] end
    end
  end
end
if holder ~= '' then
  local place = redis.call('HGET', index, holder)
  local seen = place and describe(holder, place) or {}
  state, worker = seen[1] or '', seen[4] or ''
end

local position = 0
if id ~= '' and id ~= holder then
  for i, other in ipairs(aboard) do
    if other == id then position = i - 1 end
  end
  local before = 0
  for _, list in ipairs(position == 0 and lane_lists.all(lane) or {}) do
    local at = redis.call('LPOS', list, id, 'MAXLEN', 10000)
    if at and position == 0 then position = math.max(#aboard - 1, 0) + before + at + 1 end
    before = before + redis.call('LLEN', list)
  end
end
local admitted = tonumber(redis.call('HGET', lanes, lane) or 0)
return {admitted, waiting, first, aboard, holder, state, worker, position}
