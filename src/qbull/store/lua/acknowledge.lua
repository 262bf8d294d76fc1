-- acknowledge: note that somebody knows of a kind of error, or withdraw that. The oldest note makes room.
-- KEYS  base
-- NAMES acknowledged
-- USES  clock
-- FLAGS allow-oom
-- ARGV  kind by note recent:int
--       an empty author withdraws it; recent: the failures of its busiest minutes before
-- GIVES 1 if it was there before
local MOST, KEPT_SECONDS = 200, 30 * 86400
if by == '' then return redis.call('HDEL', acknowledged, kind) end
local was_there = redis.call('HEXISTS', acknowledged, kind)
if was_there == 0 and redis.call('HLEN', acknowledged) >= MOST then
  local oldest, at
  local flat = redis.call('HGETALL', acknowledged)
  for i = 1, #flat, 2 do
    local noted = tonumber(string.match(flat[i + 1], '^%d+')) or 0
    if not at or noted < at then oldest, at = flat[i], noted end
  end
  redis.call('HDEL', acknowledged, oldest)
end
redis.call('HSET', acknowledged, kind, string.format('%.0f %d\n', now_ms, recent) .. by .. '\n' .. note)
redis.call('EXPIRE', acknowledged, KEPT_SECONDS)
return was_there
