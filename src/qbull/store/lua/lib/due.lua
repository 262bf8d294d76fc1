-- due: moments at which something is to be done, and who must hear of them.
-- USES  tell
-- COMMIT tell_due
local watched -- the earliest moment and its id of each name

local function watch(name, id, moment)
  redis.call('ZADD', name, moment, id)
  watched = watched or {}
  if not watched[name] or moment < watched[name][1] then watched[name] = {moment, id} end
end

-- Who promotes is told where something is due sooner than it was known to be.
local function tell_due()
  for name, first in pairs(watched or {}) do
    if redis.call('ZRANGE', name, 0, 0)[1] == first[2] then
      tell('bell', 'due')
      return
    end
  end
end
