-- enqueue: put a batch of jobs into a partition. A job whose id is there already adds nothing.
-- KEYS  base
-- NAMES index delayed lanes trains bands stats
-- USES  clock stamp record report index tell ready train lane arrive stats
-- ARGV  limit:int  … id when record
--       when: 0, or as in lib/arrive.lua
-- GIVES the positions (from 0) of the jobs that were there already; before them, where the partition is closed and takes
--       no others, the mark that says where they go

-- Most jobs are to run now, have no key and no priority, and nobody asks to be told. A batch of these needs nothing of what follows.
local plain = true
for i = rest, #ARGV, 3 do
  local priority, flags = string.byte(ARGV[i + 2], 2, 3)
  if ARGV[i + 1] ~= '0' or priority ~= 5 or flags >= 4 or string.byte(ARGV[i + 2], 11) ~= 0 then
    plain = false
    break
  end
end
if plain then
  local ids, known, set, stream = {}, {}, {}, base .. 'ready:5'
  for i = rest, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
  local many = #ids
  ids[many + 1] = '\n' -- what the partition says of itself: one name more costs next to nothing
  local found = redis.call('HMGET', index, unpack(ids))
  local seen, entry, n = {}, nil, 0
  local mark = found[many + 1]
  local closed = mark and string.sub(mark, 1, 6) == 'closed'
  if closed then known[1] = mark end
  for i = 1, many do
    local id = ids[i]
    if found[i] or seen[id] then
      known[#known + 1] = i - 1
    elseif not closed then
      seen[id] = true
      entry = redis.call('XADD', stream, '*', id, ARGV[rest + 3 * i - 1])
      set[n + 1] = id
      set[n + 2] = 'r5' .. entry
      n = n + 2
    end
  end
  if n > 0 then
    redis.call('HSET', index, unpack(set))
    local minute = base .. 'stats:' .. math.floor(tonumber(string.match(entry, '^%d+')) / 60000)
    redis.call('HINCRBY', stats, 'enqueued', n / 2)
    if redis.call('HINCRBY', minute, 'enqueued', n / 2) == n / 2 then redis.call('EXPIRE', minute, 90000) end
  end
  return known
end
-- LIBRARY

local ids, taken_lanes, seen = {}, {}, {}
for i = rest, #ARGV, 3 do
  local lane = lane_of(ARGV[i + 2])
  ids[#ids + 1] = ARGV[i]
  if lane and not seen[lane] then
    seen[lane] = true
    taken_lanes[#taken_lanes + 1] = lane
  end
end
ids[#ids + 1] = MARK
look_up(ids)
local known = {}
if is_closed() then
  known[1] = mark_of_partition()
  for i = 1, #ids - 1 do
    if place_of(ids[i]) then known[#known + 1] = i - 1 end
  end
  return known
end
load_lanes(taken_lanes)

for i = rest, #ARGV, 3 do
  local id, when, record = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if place_of(id) then
    known[#known + 1] = (i - rest) / 3
  elseif when == '0' then
    admit(id, record)
    report('w', id, record, 4)
  else
    arrive(id, when, record)
  end
end
write_reports()
write_index()
write_lanes()
count_up({enqueued = #ids - 1 - #known})
tell_due()
return known
