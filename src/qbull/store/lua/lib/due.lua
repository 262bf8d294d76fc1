-- due: sets with due times, and the wake-up for the promoter.
-- USES  tell
-- COMMIT tell_due
local watched -- for each set: its earliest new time

local function watch(name, id, moment)
  redis.call('ZADD', name, moment, id)
  watched = watched or {}
  watched[name] = math.min(watched[name] or moment, moment)
end

-- Wake the promoter up if something is due sooner than before. Jobs that are due at the same time are sorted
-- by their ids, so the time counts, not which of them is the first.
local function tell_due()
  for name, earliest in pairs(watched or {}) do
    if tonumber(redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')[2]) >= earliest then
      tell('bell', 'due')
      return
    end
  end
end
