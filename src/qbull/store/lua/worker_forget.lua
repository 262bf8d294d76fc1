-- worker_forget: forget a dead worker whose deliveries have all been reclaimed. One that is alive again
-- stays.
-- KEYS  base
-- NAMES workers roster losses lost
-- USES  clock tell_all
-- FLAGS allow-oom
-- ARGV  worker certain:int is_lost:int
--       is_lost: 1 if it did not stop on purpose; it counts as lost unless it only sent alerts
-- GIVES 1 if it was forgotten

-- Whether a member only sends the alerts of a process, beside the workers that run its jobs.
local function only_alerts(member)
  local read, said = pcall(cjson.decode, member or '')
  local queues = read and type(said) == 'table' and said.queues or {}
  return next(queues) == 'qbull.alerts' and next(queues, 'qbull.alerts') == nil
end

local until_ms = redis.call('ZSCORE', workers, worker)
if until_ms and certain == 0 and tonumber(until_ms) > now_ms then return 0 end
local member = redis.call('HGET', roster, worker)
local known = redis.call('ZREM', workers, worker) + redis.call('HDEL', roster, worker)
redis.call('HDEL', roster, 'usage ' .. worker)
if known > 0 then tell_all('workers') end
if known > 0 and is_lost == 1 and not only_alerts(member) then
  redis.call('HINCRBY', losses, 'total', 1)
  redis.call('HSET', losses, 'worker', worker, 'at', now_ms)
  local since = math.min(now_ms, tonumber(until_ms or now_ms))
  redis.call('LPUSH', lost, string.format('%.0f %s\n%s', since, worker, member or ''))
  redis.call('LTRIM', lost, 0, 99)
  redis.call('PEXPIRE', lost, 86400000)
end
return math.min(known, 1)
