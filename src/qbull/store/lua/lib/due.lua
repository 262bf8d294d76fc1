-- due: sets with due times, and the wake-up for the promoter.
-- USES  tell
-- COMMIT tell_due
local watched -- for each set: its earliest new time, and the id that is due then

local function watch(name, id, moment)
  redis.call('ZADD', name, moment, id)
  watched = watched or {}
  if not watched[name] or moment < watched[name][1] then watched[name] = {moment, id} end
end

-- Wake the promoter up if something is due sooner than before.
local function tell_due()
  for name, first in pairs(watched or {}) do
    if redis.call('ZRANGE', name, 0, 0)[1] == first[2] then
      tell('bell', 'due')
      return
    end
  end
end
