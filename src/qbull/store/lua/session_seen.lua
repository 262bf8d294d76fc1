-- session_seen: restart the idle time of a session that is used, up to the end of the session.
-- KEYS  base
-- USES  clock
-- FLAGS allow-oom
-- ARGV  name idle_ms:int
-- GIVES the session, or nothing
local key = base .. 'session:' .. name
local until_ms, session = string.match(redis.call('GET', key) or '', '^(%d+)\n(.*)$')
if not until_ms then return nil end
redis.call('PEXPIREAT', key, string.format('%.0f', math.min(now_ms + idle_ms, tonumber(until_ms))))
return session
