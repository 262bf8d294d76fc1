-- shared_limit_declare: store the values of a limit as the code declares them.
-- KEYS  base
-- NAMES settings
-- USES  tell_queue
-- FLAGS allow-oom
-- ARGV  … setting value
--       value: JSON
-- GIVES how many were changed
local count = 0
for i = rest, #ARGV, 2 do
  if redis.call('HGET', settings, ARGV[i]) ~= ARGV[i + 1] then
    redis.call('HSET', settings, ARGV[i], ARGV[i + 1])
    count = count + 1
  end
end
if count > 0 then tell_queue('room') end
return count
