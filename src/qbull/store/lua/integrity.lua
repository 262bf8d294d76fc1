-- integrity: check that each of these jobs is in the place that the index names, and in no other. Changes
-- nothing.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed extras cancelling followed parked limited
-- USES  record_layout record index train lane_lists
-- ARGV  … id
-- GIVES one line for each fault
local faults = {}
local function fault(id, what) faults[#faults + 1] = 'job ' .. id .. ': ' .. what end
local streams = {c = 'completed', f = 'failed', x = 'cancelled'}

local function in_train(lane, id)
  local level, entry, settled = string.match(train_state(lane) or '', '^(.)(%S+) ?(%d*)$')
  if not level then return false end
  local found = redis.call('XRANGE', base .. 'ready:' .. level, entry, entry)[1]
  for _, other in ipairs(found and ids_of_train(found[2], tonumber(settled) or 0) or {}) do
    if other == id then return true end
  end
  return false
end

local function check_lane(id, record)
  local lane = lane_of(record)
  if not lane then return fault(id, 'is behind others of its lane, but its record names none') end
  local listed, riding = redis.call('LPOS', lane_lists.of_job(lane, record), id), in_train(lane, id)
  if not listed and not riding then
    fault(id, 'is behind others of its lane, but neither in its list nor in a train')
  end
  if listed and riding then fault(id, 'is in the list of its lane and in a train') end
end

local function check_extras(id, place)
  local known = redis.call('SISMEMBER', extras, id) == 1
  local mark = redis.call('HGET', cancelling, id)
  if known and not place then fault(id, 'has extras, but the index does not know it') end
  local others = {base .. 'job:' .. id, base .. 'log:' .. id, base .. 'stream:' .. id}
  local is_followed = redis.call('SISMEMBER', followed, id) == 1
  if not known and (mark or is_followed or redis.call('EXISTS', unpack(others)) > 0) then
    fault(id, 'has extras that are not listed')
  end
  if mark and place then
    local delivery = string.sub(place, 2)
    if string.sub(place, 1, 1) == 'l' then
      delivery = string.match(lane_of(delivery) and train_state(lane_of(delivery)) or '', '^%S+')
    end
    if string.match(mark, '^%S+') ~= delivery then
      fault(id, 'is told to stop, but not with the delivery that it has')
    end
  end
end

-- A job must wait for as many jobs as it counts, or it would wait forever.
local function check_flow(id)
  local known = redis.call('HGETALL', base .. 'job:' .. id)
  local facts, waits = {}, 0
  for j = 1, #known, 2 do facts[known[j]] = known[j + 1] end
  for name, told in pairs(facts) do
    local letter = string.sub(told, 1, 1)
    local is_open = letter == 'w' or (letter ~= 'c' and facts.mode ~= 'continue')
    if string.sub(name, 1, 6) == 'child:' and is_open then waits = waits + 1 end
  end
  if waits == 0 or tonumber(facts.left) ~= waits then
    local counted = facts.left or 'no'
    fault(id, 'counts ' .. counted .. ' jobs of its flow that it waits for, and there are ' .. waits)
  end
end

local function check_parked(id)
  local lists = 0
  for _, needs in ipairs({parked, limited}) do
    for _, need in ipairs(redis.call('SMEMBERS', needs)) do
      if redis.call('ZSCORE', base .. 'parked:' .. need, id) then lists = lists + 1 end
    end
  end
  if lists ~= 1 then fault(id, 'is parked, and in ' .. lists .. ' lists of what it needs') end
end

for i = rest, #ARGV do
  local id = ARGV[i]
  local place = redis.call('HGET', index, id)
  local is_delayed = redis.call('ZSCORE', delayed, id)
  if id ~= MARK then check_extras(id, place) end
  if place and id ~= MARK then
    local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
    if is_delayed == NEVER_DUE then check_flow(id) end
    if is_delayed == PARKED_DUE then check_parked(id) end
    if (kind == 'd' or kind == 'm') ~= (is_delayed and true or false) then
      fault(id, 'index says "' .. kind .. '", but it is ' .. (is_delayed and '' or 'not ') .. 'in delayed')
    end
    local stream, entry
    if kind == 'l' then
      check_lane(id, at)
    elseif kind == 'r' then
      stream, entry = 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
    elseif streams[kind] then
      stream, entry = streams[kind], at
    elseif kind == 'm' then
      if not redis.call('ZSCORE', base .. 'leaving', id) then
        fault(id, 'is on its way to another partition, but not leaving')
      end
    elseif kind ~= 'd' then
      fault(id, 'index says "' .. place .. '", which is no place')
    end
    if stream then
      local found = redis.call('XRANGE', base .. stream, entry, entry)[1]
      local there = false
      for j = 1, found and #found[2] or 0, 2 do there = there or found[2][j] == id end
      if not there then fault(id, 'index says ' .. stream .. ' ' .. entry .. ', but it is not there') end
    end
  elseif is_delayed then
    fault(id, 'is in delayed, but the index does not know it')
  end
end
return faults
