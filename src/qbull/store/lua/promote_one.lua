-- promote_one: run a delayed job now (lib/wake_up.lua).
-- KEYS  base
-- USES  index state idempotent parked wake_up
-- FLAGS allow-oom
-- ARGV  token limit:int id
-- GIVES "promoted", "unknown", "moving" (to another partition just now), or the state that it is in instead
local before = answered(token)
if before then return before end

look_up({id})
local place = place_of(id)
if not place then return 'unknown' end
if string.sub(place, 1, 1) ~= 'd' or is_parked(id) then return state_at(id, place) end
wake_up(id, string.sub(place, 2))
commit()
return answer(token, true, {'promoted'})
