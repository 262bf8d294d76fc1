-- deposit: enqueue for producers that may write and not read (store/rights.py). It asks only whether an id is
-- there and how long the partition's mark is, and reads no record.
-- KEYS  base
-- NAMES index
-- USES  record_layout record report index lane new_job idempotent stats
-- ARGV  limit:int token  … id when record
--       as in enqueue.lua
-- GIVES "added", or "closed": the partition accepts no other jobs. Then the positions (from 0) of the jobs
--       that were already there

local before, known = token ~= '' and answered(token), {}
if before then
  for position in string.gmatch(before, '%d+') do known[#known + 1] = tonumber(position) end
  table.insert(known, 1, 'added')
  return known
end

local many, taken_lanes, seen = 0, {}, {}
for i = rest, #ARGV, 3 do
  local id, lane = ARGV[i], lane_of(ARGV[i + 2])
  places[id] = redis.call('HEXISTS', index, id) == 1 and 'there'
  many = many + 1
  if lane and not seen[lane] then
    seen[lane] = true
    taken_lanes[#taken_lanes + 1] = lane
  end
end
-- The marks "known" and "clear" have 5 bytes, "closed …" has more. A partition that is clear has no lanes in
-- `ahead`, so it may pass for a known one.
local length = redis.call('HSTRLEN', index, MARK)
places[MARK] = length > 5 and 'closed' or length > 0 and 'known'
if is_closed() then
  known[1] = 'closed'
  for i = rest, #ARGV, 3 do
    if place_of(ARGV[i]) then known[#known + 1] = (i - rest) / 3 end
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
    report('w', id, record, REPORT_ALL_FLAG)
  else
    add_job(id, when, record)
  end
end
count_up('enqueued', many - #known)
commit()
if token ~= '' then answer(token, #known < many, known) end
table.insert(known, 1, 'added')
return known
