-- limit_acquire: ask to start jobs of a queue. Counts slots (jobs at a time) and starts (in any window).
-- A worker reports how many slots it uses, so a lost reply does not upset the count. A worker that gets less
-- than it wants waits in line: nobody takes slots that are only enough for those before it, nor more than its
-- share.
-- KEYS  base
-- NAMES places starts
-- USES  clock rate tell_queue
-- FLAGS allow-oom
-- ARGV  worker used:int want:int spare:int max_active:int
-- ARGV  count:int window_ms:int ahead_ms:int  … noted starts
--       used: slots in use, -1 if unchanged; spare: slots beyond those that it wants, for jobs that it will
--       start in a moment; max_active and count: 0 is no limit; noted, starts: starts that
--       were granted before and not used
-- GIVES how many were granted; the milliseconds until it is worth asking again;
--       for each time of the starts: milliseconds from now, how the log has noted them, how many
local SOON, SAFETY, LATE = 50, 2000, 1000
local SPARE_PART = 0.25 -- of the free slots, if nobody waits in line

-- `places` has for each worker: slots in use, since when it waits in line (0: it does not), and until when
-- this is valid
local line, taken, before, own = {}, 0, 0, nil
local flat = redis.call('HGETALL', places)
for i = 1, #flat, 2 do
  local in_use, since, believed = string.match(flat[i + 1], '^(%d+) (%d+) (%d+)$')
  in_use, since = tonumber(in_use), tonumber(since)
  if flat[i] == worker then
    own = {in_use, since}
  else
    taken = taken + in_use
    if since > 0 and tonumber(believed) >= now_ms then
      line[#line + 1] = {since, flat[i]}
    elseif in_use == 0 then
      redis.call('HDEL', places, flat[i])
    end
  end
end
if used < 0 then used = own and own[1] or 0 end
local end_of_line = now_ms -- later than all before it, even if they came within the same millisecond
for _, one in ipairs(line) do end_of_line = math.max(end_of_line, one[1] + 1) end
local since = own and own[2] > 0 and own[2] or end_of_line
for _, one in ipairs(line) do
  if one[1] < since or (one[1] == since and one[2] < worker) then before = before + 1 end
end

local log, plan, next_start
local free = max_active > 0 and math.max(max_active - taken - used, 0) or want + #line
local available = free
if count > 0 then
  log = read_log(starts, window_ms)
  for i = rest, #ARGV, 2 do take_back(log, tonumber(ARGV[i]), tonumber(ARGV[i + 1])) end
  plan, next_start = plan_starts(log, count, window_ms, math.min(free, want + #line), now_ms + ahead_ms)
  available = 0
  for _, one in ipairs(plan) do available = available + one[2] end
end
local granted = math.min(want, available)
if #line > 0 then
  local share = math.ceil(available / (1 + #line))
  granted = available > before and math.min(granted, share) or 0
elseif count == 0 then
  granted = granted + math.min(spare, math.floor((available - granted) * SPARE_PART))
end

local answer = {granted, 0}
if count > 0 then
  local left = granted
  for _, one in ipairs(plan) do
    local some = math.min(left, one[2])
    if some > 0 then
      local n = #answer
      local noted_at = note_starts(log, count, window_ms, one[1], some)
      answer[n + 1], answer[n + 2], answer[n + 3] = one[1] - now_ms, noted_at, some
      left = left - some
    end
  end
  write_log(starts, log, window_ms)
end

local wait = 0
if granted < want then
  if granted < available then
    wait = SOON -- the rest is for other workers that are about to ask
  elseif free > granted then
    wait = math.min(math.max(next_start - now_ms - ahead_ms, 1), SAFETY)
  else
    wait = SAFETY -- a wake-up comes before that, when something is free
  end
end
answer[2] = wait
if max_active > 0 then used = used + granted end
if used > 0 or wait > 0 then
  -- A worker that got something goes to the end of the line.
  local waits_since = wait == 0 and 0 or granted > 0 and end_of_line or since
  redis.call('HSET', places, worker, string.format('%d %.0f %.0f', used, waits_since, now_ms + wait + LATE))
elseif own then
  redis.call('HDEL', places, worker)
end
local gives_back = (own and own[1] > used) or rest <= #ARGV
if gives_back and #line > 0 and available > granted then
  table.sort(line, function(a, b) return a[1] < b[1] end)
  tell_queue('room ' .. line[1][2])
end
return answer
