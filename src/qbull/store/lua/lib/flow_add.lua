-- flow_add: add jobs of a flow to a partition, and store the rest of the flow in its outbox. Both happen in
-- one step, so that a started flow is never forgotten. Adding the same jobs again changes nothing.
-- The list of jobs is described in flow_start.lua.
-- NEEDS base flow left rest token
-- NAMES extras
-- USES  stamp record_layout report index flow new_job stats describe idempotent

-- A generated id is unique to its flow, so a job with it was added before. A chosen id may belong to another
-- job.
local function is_ours(job)
  local place = place_of(job.id)
  if not place then return false end
  if job.given == '0' then return true end
  local record = describe(job.id, place)[2]
  return record and string.find(record, flow, 1, true) ~= nil
end

local function add_dependent(job)
  local left, known = job.many, {'flow', flow, 'mode', job.mode, 'when', job.when}
  for i = 0, job.many - 1 do
    local n, letter = #known, string.sub(ARGV[job.at + i], 1, 1)
    known[n + 1], known[n + 2] = 'child:' .. i, ARGV[job.at + i]
    if letter == 'c' or (letter ~= 'w' and job.mode == 'continue') then left = left - 1 end
  end
  known[#known + 1], known[#known + 2] = 'left', left
  in_chunks('HSET', base .. 'job:' .. job.id, known)
  redis.call('SADD', extras, job.id)
  if left == 0 then return add_job(job.id, job.when, job.record) end -- a rerun knows all results
  wait_for_others(job.id, stamped(job.record))
  report('d', job.id, job.record, REPORT_ALL_FLAG)
end

-- If no job of the flow was added yet, its first job decides whether the flow is new.
local function add_flow_jobs(is_first)
  local before = answered(token)
  if before then return before end

  local jobs, ids, at = {}, {}, rest
  while at <= #ARGV do
    local many = tonumber(ARGV[at + 5])
    jobs[#jobs + 1] = {
      id = ARGV[at], when = ARGV[at + 1], record = ARGV[at + 2], given = ARGV[at + 3], mode = ARGV[at + 4],
      many = many, at = at + 6,
    }
    ids[#ids + 1] = ARGV[at]
    at = at + 6 + many
  end
  ids[#ids + 1] = MARK
  look_up(ids)

  for i, job in ipairs(jobs) do
    local is_known = is_first and i == 1 and (place_of(job.id) or job.given == '2')
    if is_ours(job) or is_known then return 'known' end
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
