-- promote_one: run a delayed job now. A job that held its lane runs next in it. A job that left its lane to
-- wait comes first in its list, any other job joins its end.
-- KEYS  base
-- NAMES delayed
-- USES  record_layout record index ready lane state idempotent parked
-- FLAGS allow-oom
-- ARGV  token limit:int id
-- GIVES "promoted", "unknown", "moving" (to another partition just now), or the state that it is in instead
local before = answered(token)
if before then return before end

look_up({id})
local place = place_of(id)
if not place then return 'unknown' end
if string.sub(place, 1, 1) ~= 'd' or is_parked(id) then return state_at(id, place) end
local record = string.sub(place, 2)
redis.call('ZREM', delayed, id)
if holds_lane(record) then
  add_ready(level_of(record), id, record)
else
  admit(id, record, has_flag(record, RETURNS_TO_LANE_FLAG))
end
commit()
return answer(token, true, {'promoted'})
