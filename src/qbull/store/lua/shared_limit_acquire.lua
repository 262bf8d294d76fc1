-- shared_limit_acquire: ask for starts and slots of a limit that several queues share.
-- A worker reports how many slots it uses, so a lost reply does not upset the count. A worker that gets less
-- than it asked for waits in line: nobody takes what is only enough for the first job of those before it. A
-- call that is sent again gets the answer of the first one.
-- KEYS  base
-- NAMES active totals gone
-- USES  clock rate idempotent shared_limit tell_queue
-- FLAGS allow-oom
-- ARGV  token worker slots:int requests:int  … key
--       slots (a number of keys): key, jobs of this worker that have a slot of it
--       requests: key, weight, level, milliseconds ahead for which a start may be granted; -1: as far as the
--         rate allows
--       then corrections: key, how the log has noted the start, its day, the difference of its weight
-- GIVES as text: the slack in milliseconds, and for each request three numbers: milliseconds until its start,
--       how the log has noted it, its day; or -1, milliseconds until it is worth asking again, 0; or -2 if
--       its weight is more than the limit ever allows
local SOON, SAFETY, LATE, LONGEST, DAY = 50, 2000, 1000, 5000, 86400000
local before = answered(token)
if before then return before end
local rate, concurrency, daily = limit_settings()
local today = math.floor(now_ms / DAY)
local logs, touched, returned = {}, {}, {}
local granted_weight, returned_weight, today_weight = 0, 0, 0

local function log_of(key)
  if rate and not logs[key] then logs[key] = read_log(log_name(key), rate.window_ms) end
  return logs[key]
end

redis.call('HDEL', gone, worker)

-- The slots in use: those of the others, and those that this worker reports.
local old, mine = slots_of(worker), {}
for i = rest, rest + 2 * slots - 1, 2 do mine[ARGV[i]] = tonumber(ARGV[i + 1]) end
for key, count in pairs(old) do
  if (mine[key] or 0) < count then touched[key], returned[key] = true, true end
end
local function running(key)
  return tonumber(redis.call('HGET', active, key) or 0) - (old[key] or 0) + (mine[key] or 0)
end

local requests_at = rest + 2 * slots
local corrections_at = requests_at + 4 * requests
for i = corrections_at, #ARGV, 4 do
  local key, noted, day, change = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  if rate and noted > 0 then correct(log_of(key), noted, change, rate.window_ms) end
  if day > 0 then spend(day, key, change) end
  if day == today then today_weight = today_weight + change end
  if change > 0 then
    granted_weight = granted_weight + change
  else
    returned_weight = returned_weight - change
  end
  touched[key], returned[key] = true, returned[key] or change < 0
end

-- The line of a key: worker → level, since when it waits, the weight that it waits for, until when this is
-- valid.
local lines = {}
local function line_of(key)
  if lines[key] then return lines[key] end
  local line, flat = {}, redis.call('HGETALL', line_name(key))
  for i = 1, #flat, 2 do
    local level, since, weight, valid = string.match(flat[i + 1], '^(%w) (%d+) (%d+) (%d+)$')
    if flat[i] == worker or (tonumber(valid) >= now_ms and redis.call('HEXISTS', gone, flat[i]) == 0) then
      line[flat[i]] = {level = level, since = tonumber(since), weight = tonumber(weight)}
    else
      redis.call('HDEL', line_name(key), flat[i])
    end
  end
  lines[key] = line
  return line
end

-- Since when this worker waits in a line. One that comes to its end comes later than all before it, even if
-- they came within the same millisecond.
local function waits_since(key)
  local line, since = line_of(key), now_ms
  if line[worker] then return line[worker].since end
  for _, one in pairs(line) do since = math.max(since, one.since + 1) end
  return since
end

-- The weight and the number of those that come before a request of this level.
local function ahead_of(key, level)
  local weight, jobs, since = 0, 0, waits_since(key)
  for other, one in pairs(line_of(key)) do
    local comes_first = one.level < level or (one.level == level and one.since < since)
    if other ~= worker and comes_first then weight, jobs = weight + one.weight, jobs + 1 end
  end
  return weight, jobs
end

-- The milliseconds until a request can start, and how long to wait before asking again if it cannot.
local function plan(key, weight, level, within)
  if (rate and weight > rate.count) or (daily and weight > daily) then return -2, LONGEST end
  local ahead_weight, ahead_jobs = ahead_of(key, level)
  if daily and spent(today, key) + weight > daily then
    return -1, math.min((today + 1) * DAY - now_ms, LONGEST)
  end
  if concurrency and running(key) + ahead_jobs >= concurrency then
    -- When a slot is free, a wake-up comes. Those before it may be about to take theirs.
    return -1, running(key) < concurrency and SOON or SAFETY
  end
  if not rate then return 0, 0 end
  local at = earliest(log_of(key), rate, math.min(ahead_weight + weight, rate.count))
  local horizon = now_ms + (within < 0 and rate.ahead_ms or within)
  if at > horizon then return -1, math.min(math.max(at - horizon, 1), LONGEST) end
  return at - now_ms, 0
end

local words, refused = {rate and rate.slack_ms or 0}, {}
for i = requests_at, corrections_at - 1, 4 do
  local key, weight, level = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local start, wait, noted = -1, refused[key] and refused[key].wait, 0
  if not wait then start, wait = plan(key, weight, level, tonumber(ARGV[i + 3])) end
  if start >= 0 then
    if rate and weight > 0 then
      noted = note_starts(log_of(key), rate.count, rate.window_ms, now_ms + start, weight)
    end
    if daily then spend(today, key, weight) end
    granted_weight, today_weight = granted_weight + weight, today_weight + weight
    mine[key] = (mine[key] or 0) + 1
    lines[key][worker] = nil
  elseif start == -1 and not refused[key] then
    refused[key] = {wait = wait, level = level, weight = weight}
  end
  local n = #words
  words[n + 1], words[n + 2] = start, string.format('%.0f', start < 0 and wait or noted)
  words[n + 3] = start >= 0 and today or 0
  touched[key] = true
end

for key, log in pairs(logs) do write_log(log_name(key), log, rate.window_ms) end
for key in pairs(old) do touched[key] = true end
for key in pairs(mine) do touched[key] = true end
local has_room = false
for key in pairs(touched) do
  local change, one = (mine[key] or 0) - (old[key] or 0), refused[key]
  if change ~= 0 and redis.call('HINCRBY', active, key, change) <= 0 then redis.call('HDEL', active, key) end
  if one then
    local valid = now_ms + one.wait + LATE
    redis.call('HSET', line_name(key), worker,
      string.format('%s %.0f %.0f %.0f', one.level, waits_since(key), one.weight, valid))
    redis.call('PEXPIRE', line_name(key), 2 * LONGEST)
  else
    redis.call('HDEL', line_name(key), worker)
  end
  if returned[key] then
    for other in pairs(line_of(key)) do has_room = has_room or other ~= worker end
  end
end
if granted_weight > 0 then redis.call('HINCRBY', totals, 'granted', granted_weight) end
if returned_weight > 0 then redis.call('HINCRBY', totals, 'returned', returned_weight) end
if redis.call('HGET', totals, 'day') ~= tostring(today) then
  redis.call('HSET', totals, 'day', today, 'spent', math.max(today_weight, 0))
elseif today_weight ~= 0 then
  redis.call('HINCRBY', totals, 'spent', today_weight)
end
set_slots(worker, mine)
if has_room then tell_queue('room') end
return answer(token, requests > 0 or corrections_at <= #ARGV, words)
