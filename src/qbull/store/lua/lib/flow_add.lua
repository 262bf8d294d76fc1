-- flow_add: put jobs of a flow into a partition, those that wait for others and those that do not, and note
-- what is left of the flow:
-- one step, so that a flow which has been begun is never forgotten. Planting the same again adds nothing.
-- The list of jobs is as in flow_start.lua.
-- NEEDS base flow left rest token
-- NAMES extras
-- USES  stamp record_layout report index flow new_job stats describe idempotent

-- An id that was made for this flow is known where it was planted before; one that was chosen may be
-- another's.
local function is_ours(job)
  local place = place_of(job.id)
  if not place then return false end
  if job.given == '0' then return true end
  local record = describe(job.id, place)[2]
  return record and string.find(record, flow, 1, true) ~= nil
end

local function add_dependent(job)
  local known = {'flow', flow, 'mode', job.mode, 'when', job.when, 'left', job.many}
  for i = 0, job.many - 1 do
    local n = #known
    known[n + 1], known[n + 2] = 'child:' .. i, 'w' .. ARGV[job.at + i]
  end
  in_chunks('HSET', base .. 'job:' .. job.id, known)
  redis.call('SADD', extras, job.id)
  wait_for_others(job.id, stamped(job.record))
  report('d', job.id, job.record, REPORT_ALL_FLAG)
end

-- Where nothing of the flow is planted yet, its first job decides whether it is new.
local function add_flow_jobs(is_first)
  local before = answered(token)
  if before then return before end

  local jobs, ids, at = {}, {}, rest
  while at <= #ARGV do
    local many = tonumber(ARGV[at + 5])
    jobs[#jobs + 1] = {id = ARGV[at], when = ARGV[at + 1], record = ARGV[at + 2], given = ARGV[at + 3], mode = ARGV[at + 4], many = many, at = at + 6}
    ids[#ids + 1] = ARGV[at]
    at = at + 6 + many
  end
  ids[#ids + 1] = MARK
  look_up(ids)

  for i, job in ipairs(jobs) do
    if is_ours(job) or (is_first and i == 1 and (place_of(job.id) or job.given == '2')) then return 'known' end
  end
  if is_closed() then return mark_of_partition() end

  local planted = 0
  for _, job in ipairs(jobs) do
    if place_of(job.id) or job.given == '2' then
      tell_flow('t', job.id, job.record)
    else
      if job.many > 0 then add_dependent(job) else add_job(job.id, job.when, job.record) end
      planted = planted + 1
    end
  end
  local entry = left ~= '' and redis.call('XADD', base .. 'outgoing', '*', 'n' .. flow, left) or ''
  count_up('enqueued', planted)
  return answer(token, true, {'planted', entry})
end
