-- enqueue: add a batch of jobs to a partition. A job whose id is already there is not added again.
-- KEYS  base
-- USES  record_layout record report index lane new_job idempotent stats
-- ARGV  limit:int token  … id when record
--       token: for a call with ids that its caller chose: the same call sent again gets the same answer; else
--       empty
--       when: 0, or as in lib/new_job.lua
-- GIVES "added", or the mark of a closed partition ("closed …"), which accepts no other jobs and names their
--       generation; then the positions (from 0) of the jobs that were already there

local before, known = token ~= '' and answered(token), {}
if before then
  for position in string.gmatch(before, '%d+') do known[#known + 1] = tonumber(position) end
  table.insert(known, 1, 'added')
  return known
end

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
    report('w', id, record, REPORT_ALL_FLAG)
  else
    add_job(id, when, record)
  end
end
count_up('enqueued', #ids - 1 - #known)
commit()
if token ~= '' then answer(token, #known < #ids - 1, known) end
table.insert(known, 1, 'added')
return known
