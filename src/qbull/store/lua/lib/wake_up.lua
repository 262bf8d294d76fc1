-- wake_up: let a delayed job run now. A job that held its lane runs next in it. A job that left its lane to
-- wait comes first in its list, any other job joins its end.
-- NEEDS base limit
-- NAMES delayed
-- USES  record_layout record ready lane
local function wake_up(id, record)
  redis.call('ZREM', delayed, id)
  if holds_lane(record) then
    add_ready(level_of(record), id, record)
  else
    admit(id, record, has_flag(record, RETURNS_TO_LANE_FLAG))
  end
end
