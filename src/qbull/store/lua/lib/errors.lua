-- errors: failures by kind (core/failures.py), counted exactly: per minute for a day, and for each kind its
-- total, its first and last time, the start of its latest series of failures without a quiet hour, and the
-- newest job. Only jobs that fail pay for it.
-- NEEDS base
-- NAMES errors
-- USES  clock
local count_error
do -- a script may have 200 local names
  local MOST_KINDS, MOST_COUNTS = 200, 5000
  local KEPT_SECONDS, COUNTS_SECONDS = 30 * 86400, 90000
  local OTHERS = '-'
  local QUIET_MS = 3600000 -- as in core/acknowledgement.py

  -- The kind that was not seen for the longest time makes room for a new one.
  local function forget_oldest_kind()
    local oldest, at
    local flat = redis.call('HGETALL', errors)
    for i = 1, #flat, 2 do
      local seen = tonumber(string.match(flat[i + 1], '^%d+ %d+ (%d+)')) or 0
      if not at or seen < at then oldest, at = flat[i], seen end
    end
    redis.call('HDEL', errors, oldest)
  end

  -- Count a failure. `kind` is "<fingerprint> <error without details>"; '' if it is unknown.
  function count_error(kind, id)
    local name, form = string.match(kind, '^(%S+) (.*)$')
    if not name then return end
    local before = redis.call('HGET', errors, name) or ''
    local n, first, last, since = string.match(before, '^(%d+) (%d+) (%d+)@?(%d*) ')
    if not n and redis.call('HLEN', errors) >= MOST_KINDS then forget_oldest_kind() end
    if not last or now_ms - last >= QUIET_MS then since = now_ms end
    if since == '' then since = first end
    local facts = string.format('%.0f %.0f %.0f@%.0f %d ', (n or 0) + 1, first or now_ms, now_ms, since, #id)
    redis.call('HSET', errors, name, facts .. id .. form)
    redis.call('EXPIRE', errors, KEPT_SECONDS)
    local minute = math.floor(now_ms / 60000)
    local counts_of_hour = base .. 'errors:' .. math.floor(minute / 60)
    if redis.call('HINCRBY', counts_of_hour, minute .. ' ' .. name, 1) > 1 then return end
    redis.call('EXPIRE', counts_of_hour, COUNTS_SECONDS)
    if redis.call('HLEN', counts_of_hour) > MOST_COUNTS then
      redis.call('HDEL', counts_of_hour, minute .. ' ' .. name)
      redis.call('HINCRBY', counts_of_hour, minute .. ' ' .. OTHERS, 1)
    end
  end
end
