-- integrity_counts: check that the counts of lanes and of finished jobs match the jobs. Changes nothing.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index lanes trains kept delayed parked limited
-- USES  record_layout record train used_levels lane_lists
-- GIVES one line for each fault
local counted, faults = {}, {}
local function count(record)
  local lane = lane_of(record)
  if lane then counted[lane] = (counted[lane] or 0) + 1 end
end
local names = used_levels()
local riding = 0
for _, level in ipairs(names) do
  for _, entry in ipairs(redis.call('XRANGE', base .. 'ready:' .. level, '-', '+')) do
    local id, record = entry[2][1], entry[2][2]
    if redis.call('HGET', index, id) == 'r' .. level .. entry[1] then count(record) end
    local lane = string.sub(record, 1, KEY_LANE_BYTES)
    if id == '' and settled_of(lane, level .. entry[1]) then riding = riding + 1 end
  end
end
if riding ~= redis.call('HLEN', trains) then
  faults[#faults + 1] = redis.call('HLEN', trains) .. ' trains are known and ' .. riding .. ' are there'
end
local flat, in_lanes = redis.call('HGETALL', index), 0
for i = 2, #flat, 2 do
  local kind, record = string.sub(flat[i], 1, 1), string.sub(flat[i], 2)
  if kind == 'l' then in_lanes = in_lanes + 1 end
  if kind == 'l' or (kind == 'd' and holds_lane(record)) then count(record) end
end
local said_in_lanes = tonumber(redis.call('HGET', kept, 'lanes') or 0)
if said_in_lanes ~= in_lanes then
  faults[#faults + 1] = said_in_lanes .. ' jobs are counted behind others of their lanes and there are '
    .. in_lanes
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
  local listed = lane_lists.length(lane)
  for level in string.gmatch(lane_lists.levels(lane), '.') do
    if redis.call('EXISTS', lane_lists.name(lane, level)) == 0 then
      faults[#faults + 1] = 'a lane lists level ' .. level .. ', of which it has no job'
    end
  end
  local held = redis.call('SISMEMBER', base .. 'held', lane) == 1
  if (listed == n) ~= held then
    faults[#faults + 1] = 'of a lane ' .. listed .. ' of ' .. n .. ' jobs wait, and it is '
      .. (held and '' or 'not ') .. 'held'
  end
  counted[lane] = nil
end
local listed_parked = 0
for _, needs in ipairs({parked, limited}) do
  for _, need in ipairs(redis.call('SMEMBERS', needs)) do
    local many = redis.call('ZCARD', base .. 'parked:' .. need)
    if many == 0 then faults[#faults + 1] = 'a need is listed that no parked job has' end
    listed_parked = listed_parked + many
  end
end
local there = redis.call('ZCOUNT', delayed, PARKED_DUE, PARKED_DUE)
if there ~= listed_parked then
  faults[#faults + 1] = listed_parked .. ' jobs are listed as parked and there are ' .. there
end
for _, n in pairs(counted) do faults[#faults + 1] = 'a lane has ' .. n .. ' jobs and no count' end
return faults
