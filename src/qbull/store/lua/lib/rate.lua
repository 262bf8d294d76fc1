-- rate: a log of granted starts, so that any window has at most `count` of them.
-- It is a string: the time of the latest start, then "time:starts" for those of the last window, in rising
-- order. If there can be many, times are rounded up to one of BUCKETS. That keeps the log short; a start then
-- counts a little too long, never too short.
-- USES  clock
local BUCKETS = 128

local function parse_log(text, window_ms)
  local furthest = now_ms + window_ms -- the clock may have been set back
  local log = {latest = math.min(tonumber(string.match(text, '^%d+') or 0), furthest), used = 0}
  for time, starts in string.gmatch(text, '(%d+):(%d+)') do
    time, starts = math.min(tonumber(time), furthest), tonumber(starts)
    if time > now_ms - window_ms then
      log[#log + 1] = {time, starts}
      log.used = log.used + starts
    end
  end
  return log
end

local function read_log(name, window_ms) return parse_log(redis.call('GET', name) or '', window_ms) end

-- The starts of two logs together. Neither of them changes.
local function joined_logs(one, other)
  local log = {latest = math.max(one.latest, other.latest), used = one.used + other.used}
  for _, some in ipairs({one, other}) do
    for _, starts in ipairs(some) do log[#log + 1] = starts end
  end
  table.sort(log, function(a, b) return a[1] < b[1] end)
  return log
end

local function write_log(name, log, window_ms)
  local parts = {string.format('%.0f', log.latest)}
  for _, one in ipairs(log) do
    if one[2] > 0 then parts[#parts + 1] = string.format('%.0f:%d', one[1], one[2]) end
  end
  if #parts == 1 then
    redis.call('DEL', name)
  else
    local ttl_ms = log[#log][1] - now_ms + window_ms
    redis.call('SET', name, table.concat(parts, ' '), 'PX', string.format('%.0f', ttl_ms))
  end
end

-- Plan up to `want` starts, none later than `horizon`: {time, starts} …, and the time of the next start after
-- these.
local function plan_starts(log, count, window_ms, want, horizon)
  local plan, oldest, used, time = {}, 1, log.used, math.max(now_ms, log.latest)
  while true do
    while used >= count do -- the oldest must have left the window
      local one = log[oldest] or plan[oldest - #log]
      oldest = oldest + 1
      time = math.max(time, one[1] + window_ms)
      used = used - one[2]
    end
    if want <= 0 or time > horizon then return plan, time end
    local starts = math.min(want, count - used)
    plan[#plan + 1] = {time, starts}
    used = used + starts
    want = want - starts
  end
end

-- Log starts at this time. Returns the time under which the log has them.
local function note_starts(log, count, window_ms, time, starts)
  local bucket = count > BUCKETS and math.max(math.floor(window_ms / BUCKETS), 1) or 1
  local noted, last = math.ceil(time / bucket) * bucket, log[#log]
  log.latest = math.max(log.latest, time)
  log.used = log.used + starts
  if last and last[1] >= noted then
    last[2] = last[2] + starts
    return last[1]
  end
  log[#log + 1] = {noted, starts}
  return noted
end

-- Remove starts from the log that were granted but not used.
local function take_back(log, noted, starts)
  for _, one in ipairs(log) do
    if one[1] == noted then
      local back = math.min(one[2], starts)
      one[2] = one[2] - back
      log.used = log.used - back
      return
    end
  end
end
