-- configure: change live settings of a queue, and log who did it. A value that is set already is no change.
-- KEYS  base
-- NAMES live changes hold
-- USES  clock tell_queue
-- FLAGS allow-oom
-- ARGV  by most:int  … setting value
--       value: JSON, or empty to return to the setting in the code; most: how many changes the log keeps
-- GIVES how many were changed
local count = 0
for i = rest, #ARGV, 2 do
  local setting, value = ARGV[i], ARGV[i + 1]
  local before = string.match(redis.call('HGET', live, setting) or '', '^[^\n]*\n[^\n]*\n(.*)$') or ''
  if setting == 'paused' and value == '' then count = count + redis.call('DEL', hold) end
  if value ~= before then
    local at = string.format('%.0f', now_ms)
    if value == '' then
      redis.call('HDEL', live, setting)
    else
      redis.call('HSET', live, setting, at .. '\n' .. by .. '\n' .. value)
    end
    redis.call('LPUSH', changes, table.concat({at, by, setting, before, value}, '\n'))
    count = count + 1
  end
end
if count > 0 then
  redis.call('LTRIM', changes, 0, most - 1)
  tell_queue('settings')
end
return count
