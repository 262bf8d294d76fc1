-- partition_report: the owner of a partition's lease, its longest lanes, and its halted lanes.
-- The work is limited. If there are more lanes than `sample`, it examines the lanes of `sample` random jobs
-- that wait in one, which finds any lane with a large share of them. Of the dead letters it reads the
-- newest.
-- KEYS  base
-- FLAGS no-writes
-- NAMES lease lanes index failed
-- USES  record lane_lists
-- ARGV  sample:int most:int letters:int
-- GIVES the lease as name, value …; lane, length, the id at its head … of the longest lanes; and lane,
--       length, id, entry … of the dead letters that halt theirs
local seen, longest = {}, {}

local function add_lane(lane)
  if seen[lane] then return end
  seen[lane] = true
  local length = lane_lists.length(lane)
  if length > 0 then longest[#longest + 1] = {lane, length} end
end

if redis.call('HLEN', lanes) <= sample then
  for _, lane in ipairs(redis.call('HKEYS', lanes)) do add_lane(lane) end
else
  local hits = 0
  for _ = 1, 4 do -- most of the index may be finished jobs
    local flat = redis.call('HRANDFIELD', index, -sample, 'WITHVALUES')
    for i = 2, #flat, 2 do
      local lane = string.sub(flat[i], 1, 1) == 'l' and lane_of(string.sub(flat[i], 2))
      if lane then
        hits = hits + 1
        add_lane(lane)
      end
    end
    if hits >= sample / 2 then break end
  end
end
table.sort(longest, function(a, b) return a[2] > b[2] end)
local hot = {}
for i = 1, math.min(most, #longest) do
  local lane, length = longest[i][1], longest[i][2]
  hot[#hot + 1] = lane
  hot[#hot + 1] = length
  local head
  for _, list in ipairs(lane_lists.all(lane)) do head = head or redis.call('LINDEX', list, 0) end
  hot[#hot + 1] = head
end

local halted = {}
if letters > 0 then
  for _, found in ipairs(redis.call('XREVRANGE', failed, '+', '-', 'COUNT', letters)) do
    local entry, fields = found[1], found[2]
    for i = 1, #fields, 2 do
      local id, record = fields[i], fields[i + 1]
      local lane = is_record(record) and holds_lane(record) and lane_of(record)
      if lane and #halted < 4 * most and redis.call('HGET', index, id) == 'f' .. entry then
        halted[#halted + 1] = lane
        halted[#halted + 1] = lane_lists.length(lane)
        halted[#halted + 1] = id
        halted[#halted + 1] = entry
      end
    end
  end
end
return {redis.call('HGETALL', lease), hot, halted}
