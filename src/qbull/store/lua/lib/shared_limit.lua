-- shared_limit: the state of a limit that several queues share.
--   settings       declared values, as JSON; live: those that an operator has changed (configure.lua)
--   log:<key>      the starts of the last window with their weights (lib/rate.lua)
--   spent:<day>    the weight that started on that day → key, while the limit has a daily budget
--   totals         the weight that was ever granted, and ever given back; the present day, and its weight
--   active         key → slots in use, over all workers; holders: worker → its slots by key
--   line:<key>     the workers that wait, unless they are gone; gone: those that were freed a moment ago
-- NEEDS base
-- NAMES settings live holders
-- USES  clock
local SPENT_SECONDS = 172800

local function log_name(key) return base .. 'log:' .. key end
local function line_name(key) return base .. 'line:' .. key end

local function setting(name)
  local text = redis.call('HGET', live, name)
  text = text and string.match(text, '^[^\n]*\n[^\n]*\n(.*)$') or redis.call('HGET', settings, name)
  local value = text and cjson.decode(text)
  return value ~= cjson.null and value or nil
end

local function limit_settings() return setting('rate'), setting('concurrency'), setting('daily') end

local function slots_of(worker)
  local text = redis.call('HGET', holders, worker)
  return text and cjson.decode(text) or {}
end

local function set_slots(worker, slots)
  for key, count in pairs(slots) do if count <= 0 then slots[key] = nil end end
  if next(slots) then
    redis.call('HSET', holders, worker, cjson.encode(slots))
  else
    redis.call('HDEL', holders, worker)
  end
end

local function spent(day, key) return tonumber(redis.call('ZSCORE', base .. 'spent:' .. day, key) or 0) end

local function spend(day, key, weight)
  local name = string.format('%sspent:%.0f', base, day)
  if tonumber(redis.call('ZINCRBY', name, weight, key)) <= 0 then redis.call('ZREM', name, key) end
  redis.call('EXPIRE', name, SPENT_SECONDS)
end

-- The time at which so much weight fits into the window.
local function earliest(log, rate, weight)
  local used, time, oldest = log.used, math.max(now_ms, log.latest), 1
  while used + weight > rate.count and log[oldest] do
    time = math.max(time, log[oldest][1] + rate.window_ms)
    used = used - log[oldest][2]
    oldest = oldest + 1
  end
  return time
end

-- Change the weight of a start that the log has noted. One that has left the window counts no more.
local function correct(log, noted, change, window_ms)
  if noted <= now_ms - window_ms then return end
  local at = 1
  while log[at] and log[at][1] < noted do at = at + 1 end
  if not log[at] or log[at][1] ~= noted then table.insert(log, at, {noted, 0}) end
  local weight = math.max(log[at][2] + change, 0)
  log.used = log.used + weight - log[at][2]
  log[at][2] = weight
end
