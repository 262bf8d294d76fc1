-- audit: is every job of these in exactly the place that the index says, and no other? Looks, changes nothing.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed trains
-- USES  record index train
-- ARGV  … id
-- GIVES one line for each fault
local faults = {}
local function fault(id, what) faults[#faults + 1] = 'job ' .. id .. ': ' .. what end
local streams = {c = 'completed', f = 'failed', x = 'cancelled'}

local function in_train(lane, id)
  local band, entry, settled = string.match(train_state(lane) or '', '^(.)(%S+) ?(%d*)$')
  if not band then return false end
  local found = redis.call('XRANGE', base .. 'ready:' .. band, entry, entry)[1]
  for _, other in ipairs(found and ids_of_train(found[2], tonumber(settled) or 0) or {}) do
    if other == id then return true end
  end
  return false
end

local function check_lane(id, record)
  local lane = lane_of(record)
  if not lane then return fault(id, 'is behind others of its lane, but its record names none') end
  local listed, riding = redis.call('LPOS', base .. 'lane:' .. lane, id), in_train(lane, id)
  if not listed and not riding then fault(id, 'is behind others of its lane, but neither in its list nor in a train') end
  if listed and riding then fault(id, 'is in the list of its lane and in a train') end
end

for i = rest, #ARGV do
  local id = ARGV[i]
  local place = redis.call('HGET', index, id)
  local is_delayed = redis.call('ZSCORE', delayed, id)
  if place then
    local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
    if (kind == 'd') ~= (is_delayed and true or false) then
      fault(id, 'index says "' .. kind .. '", but it is ' .. (is_delayed and '' or 'not ') .. 'in delayed')
    end
    local stream, entry
    if kind == 'l' then
      check_lane(id, at)
    elseif kind == 'r' then
      stream, entry = 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
    elseif streams[kind] then
      stream, entry = streams[kind], at
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
