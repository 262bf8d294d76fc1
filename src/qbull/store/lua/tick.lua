-- tick: start the runs of schedules that are due by the server's clock. Each planned instant becomes a job
-- once: a proposal for another revision than the current one changes nothing.
-- KEYS  base
-- NAMES index schedules
-- USES  clock index new_job schedule_runs stats
-- ARGV  limit:int grace_ms:int hold_ms:int  …
--       for each schedule: name, rev, catch_up, overlap, missed (runs that were left out), when
--       (lib/new_job.lua), how many instants, and for each of them planned, due, id, record ('' if it is that
--       of the instant before); then planned and due of the one that follows ('' if there is none)
-- GIVES for each schedule how many runs were started, skipped and missed; 0, 0, 0 if the proposal is outdated

local function unfinished(id)
  if not id then return false end
  local place = place_of(id) or redis.call('HGET', index, id)
  return place and not string.find('cfx', string.sub(place, 1, 1), 1, true)
end

-- The record of an instant: its own, or that of the last instant before it that has one.
local function record_of(first, i)
  while i > 1 and ARGV[first + 4 * i - 1] == '' do i = i - 1 end
  return ARGV[first + 4 * i - 1]
end

-- Decide about the first `due` instants: which to run, which to skip because the last run has not ended, and
-- the one that has to wait for that end.
local function choose(plan, catch_up, overlap, due, late_ms)
  local busy = overlap == 'skip' and (unfinished(plan[3]) or unfinished(plan[4]))
  if catch_up ~= 'all' then
    if catch_up == 'skip' and late_ms > grace_ms then return due + 1, due, 0, nil end
    if busy then return due + 1, due, 1, nil end
    return due, due, 0, nil
  end
  if busy then return 1, 0, 0, 1 end
  if overlap == 'skip' and due > 1 then return 1, 1, 0, 2 end
  return 1, due, 0, nil
end

local answers, total, all_missed = {}, 0, 0
local at = rest
while at <= #ARGV do
  local name, rev, catch_up, overlap = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local missed, when = tonumber(ARGV[at + 4]), ARGV[at + 5]
  local many = tonumber(ARGV[at + 6])
  local first = at + 7
  local follows = first + 4 * many
  at = follows + 2

  local state = base .. 'schedule:' .. name
  local plan = redis.call('HMGET', state, 'rev', 'last', 'job', 'manual')
  local due = 0
  while due < many and tonumber(ARGV[first + 4 * due + 1]) <= now_ms do due = due + 1 end
  local more = due == many and ARGV[follows] ~= '' and tonumber(ARGV[follows + 1]) <= now_ms
  local fired, skipped = 0, 0
  if plan[1] == rev and due > 0 and not (more and catch_up ~= 'all') then
    local late_ms = now_ms - tonumber(ARGV[first + 4 * due - 3])
    local from, upto, passed, waits = choose(plan, catch_up, overlap, due, late_ms)
    local last, job, again = tonumber(plan[2] or 0), nil, 0
    local runs = {}
    skipped = passed
    for i = from, upto do
      local planned, id = tonumber(ARGV[first + 4 * i - 4]), ARGV[first + 4 * i - 2]
      if planned > last then
        look_up({id})
        if not place_of(id) then add_job(id, when, record_of(first, i)) end
        fired, last, job = fired + 1, planned, id
        runs[#runs + 1], runs[#runs + 2] = id, '-'
      else -- the clock was set back
        again = again + 1
      end
    end
    local seen = waits and waits - 1 or due
    missed = missed + seen - fired - skipped - again
    if missed > 0 then runs[#runs + 1], runs[#runs + 2] = '-', 'm' end
    if skipped > 0 then runs[#runs + 1], runs[#runs + 2] = '-', 's' end
    local next_at = first + 4 * seen
    if seen == many then next_at = follows end
    local due_ms = ARGV[next_at + 1]
    if waits then due_ms = now_ms + hold_ms end
    redis.call('HSET', state, 'rev', plan[1] + 1, 'next', ARGV[next_at])
    if job then redis.call('HSET', state, 'last', last, 'job', job, 'fired_at', now_ms) end
    add_runs(state, now_ms, runs)
    if fired > 0 then redis.call('HINCRBY', state, 'fired', fired) end
    if skipped > 0 then redis.call('HINCRBY', state, 'skipped', skipped) end
    if missed > 0 then redis.call('HINCRBY', state, 'missed', missed) end
    redis.call('ZADD', schedules, due_ms == '' and 'inf' or due_ms, name)
    total, all_missed = total + fired, all_missed + missed
  else
    missed = 0
  end
  answers[#answers + 1] = fired
  answers[#answers + 1] = skipped
  answers[#answers + 1] = missed
end
count_up('enqueued', total)
count_up('missed', all_missed)
commit()
return answers
