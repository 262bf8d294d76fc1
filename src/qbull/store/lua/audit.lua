-- audit: is every job of these in exactly the place that the index says, and no other? Looks, changes nothing.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index parked delayed lanes
-- ARGV  … id
-- GIVES one line for each fault
local faults = {}
local function fault(id, what) faults[#faults + 1] = 'job ' .. id .. ': ' .. what end
local streams = {c = 'completed', f = 'failed', x = 'cancelled'}

for i = rest, #ARGV do
  local id = ARGV[i]
  local place = redis.call('HGET', index, id)
  local is_parked = redis.call('HEXISTS', parked, id) == 1
  local is_delayed = redis.call('ZSCORE', delayed, id)
  if place then
    local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
    if (kind == 'l' or kind == 'd') ~= is_parked then
      fault(id, 'index says "' .. kind .. '", but it is ' .. (is_parked and '' or 'not ') .. 'parked')
    end
    if (kind == 'd') ~= (is_delayed and true or false) then
      fault(id, 'index says "' .. kind .. '", but it is ' .. (is_delayed and '' or 'not ') .. 'in delayed')
    end
    local stream, entry
    if kind == 'r' then
      stream, entry = 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
    elseif streams[kind] then
      stream, entry = streams[kind], at
    elseif kind ~= 'l' and kind ~= 'd' then
      fault(id, 'index says "' .. place .. '", which is no place')
    end
    if stream then
      local found = redis.call('XRANGE', base .. stream, entry, entry)[1]
      local there = false
      for j = 1, found and #found[2] or 0, 2 do there = there or found[2][j] == id end
      if not there then fault(id, 'index says ' .. stream .. ' ' .. entry .. ', but it is not there') end
    end
    if kind == 'l' then
      local record = redis.call('HGET', parked, id)
      local lane = record and string.byte(record, 11) == 8 and string.sub(record, 12, 19)
      if not lane then
        fault(id, 'waits in a lane, but its record names none')
      elseif not redis.call('LPOS', base .. 'lane:' .. lane, id) then
        fault(id, 'waits in a lane, but is not in its list')
      end
    end
  elseif is_parked or is_delayed then
    fault(id, 'is ' .. (is_parked and 'parked' or 'in delayed') .. ', but the index does not know it')
  end
end
return faults
