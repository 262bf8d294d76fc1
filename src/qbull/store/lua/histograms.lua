-- histograms: add to the histograms of a queue: to those of all time, of this minute and of this hour. A
-- call that is sent again counts once.
-- KEYS  base
-- NAMES figures
-- USES  clock
-- FLAGS allow-oom
-- ARGV  token  … name n
--       name: d:… durations of a task, v:… its waits (by time only), w:… waits of all tasks (all time only)
-- GIVES now in ms
if rest > #ARGV then return now_ms end
if redis.call('SET', base .. 'once:' .. token, '1', 'NX', 'EX', 60) then
  local minute = math.floor((now_ms - 7500) / 60000)  -- the counts are of the last 15 s
  local hour = math.floor(minute / 60)
  local minutes = string.format('%slatency:minutes:%.0f', base, hour)
  local hours = string.format('%slatency:hours:%.0f', base, math.floor(hour / 24))
  local timed = false
  for i = rest, #ARGV, 2 do
    local name, n = ARGV[i], ARGV[i + 1]
    local kind = string.sub(name, 1, 2)
    if kind ~= 'v:' then redis.call('HINCRBY', figures, name, n) end
    if kind == 'v:' or (kind == 'd:' and string.sub(name, 3, 5) ~= '64:') then
      redis.call('HINCRBY', minutes, (minute % 60) .. ':' .. name, n)
      redis.call('HINCRBY', hours, (hour % 24) .. ':' .. name, n)
      timed = true
    end
  end
  if timed then
    redis.call('EXPIRE', minutes, 26 * 3600)
    redis.call('EXPIRE', hours, 32 * 86400)
  end
end
return now_ms
