-- schedule_write: store a schedule, unless it has changed since it was read.
-- KEYS  base
-- NAMES schedules
-- USES  clock tell
-- FLAGS allow-oom
-- ARGV  name rev:int due word  … field value
--       rev: the revision that was read, 0 if there was none; due: when to look at it next, in ms, '' for
--       never
--       word: "put", and the fields to set ('' deletes one), or "drop", and all of it is deleted
-- GIVES 1, or 0 if it has changed in the meantime
local TRACE_MS = 3600000
local state = base .. 'schedule:' .. name
local now_rev = tonumber(redis.call('HGET', state, 'rev') or 0)
if now_rev ~= rev then return 0 end
-- A deleted schedule leaves its revision for an hour, so that a late writer that has read it before cannot
-- write it again.
if word == 'drop' then redis.call('UNLINK', state) end
for i = rest, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', state, ARGV[i])
  else
    redis.call('HSET', state, ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', state, 'rev', string.format('%.0f', math.max(now_rev + 1, now_ms)))
if word == 'drop' then
  redis.call('PEXPIRE', state, TRACE_MS)
  redis.call('ZREM', schedules, name)
  return 1
end
redis.call('PERSIST', state)
redis.call('ZADD', schedules, due == '' and 'inf' or due, name)
if due ~= '' and redis.call('ZRANGE', schedules, 0, 0)[1] == name then tell('bell', 'tick') end
return 1
