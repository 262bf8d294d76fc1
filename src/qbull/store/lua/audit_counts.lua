-- audit_counts: do the counts of lanes and of kept jobs match the jobs that are there? Looks, changes nothing.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index parked delayed lanes bands kept
-- USES  record
-- GIVES one line for each fault
local counted, faults = {}, {}
local function count(record)
  local lane = lane_of(record)
  if lane then counted[lane] = (counted[lane] or 0) + 1 end
end
local names = {'0', '5'}
for _, band in ipairs(redis.call('SMEMBERS', bands)) do names[#names + 1] = band end
for _, band in ipairs(names) do
  for _, entry in ipairs(redis.call('XRANGE', base .. 'ready:' .. band, '-', '+')) do
    for i = 1, #entry[2], 2 do
      if redis.call('HGET', index, entry[2][i]) == 'r' .. band .. entry[1] then count(entry[2][i + 1]) end
    end
  end
end
local flat = redis.call('HGETALL', parked)
for i = 1, #flat, 2 do
  if not redis.call('ZSCORE', delayed, flat[i]) or holds_lane(flat[i + 1]) then count(flat[i + 1]) end
end
for stream, letter in pairs({completed = 'c', failed = 'f', cancelled = 'x'}) do
  local there = 0
  for _, entry in ipairs(redis.call('XRANGE', base .. stream, '-', '+')) do
    for i = 1, #entry[2], 2 do
      if redis.call('HGET', index, entry[2][i]) == letter .. entry[1] then
        there = there + 1
        if stream == 'failed' and holds_lane(entry[2][i + 1]) then count(entry[2][i + 1]) end
      end
    end
  end
  local said = tonumber(redis.call('HGET', kept, stream) or 0)
  if said ~= there then faults[#faults + 1] = stream .. ' counts ' .. said .. ' jobs and has ' .. there end
end
local stored = redis.call('HGETALL', lanes)
for i = 1, #stored, 2 do
  local lane, n = stored[i], tonumber(stored[i + 1])
  if (counted[lane] or 0) ~= n then
    faults[#faults + 1] = 'a lane counts ' .. n .. ' jobs and has ' .. (counted[lane] or 0)
  end
  counted[lane] = nil
end
for _, n in pairs(counted) do faults[#faults + 1] = 'a lane has ' .. n .. ' jobs and no count' end
return faults
