-- cancel: cancel waiting and delayed jobs at once. A job that a worker holds is marked, and the workers are
-- woken up.
-- KEYS  base
-- USES  index tell state cancel_mark take
-- FLAGS allow-oom
-- ARGV  limit:int failed:int failed_ms:int ending  … id
-- GIVES a word for each: "cancelled" (now or before), "cancelling", "completed", "failed", "unknown"
local ids, words = {}, {}
for i = rest, #ARGV do ids[#ids + 1] = ARGV[i] end
look_up(ids)
local marks = 0
for _, id in ipairs(ids) do
  local place = place_of(id)
  local kind = place and string.sub(place, 1, 1)
  local word = 'cancelled'
  if not place then
    word = 'unknown'
  elseif STATE[kind] and kind ~= 'd' then
    word = STATE[kind]
  else
    local record, delivery = take_waiting(id, place)
    if record then
      finish_cancelled(id, record, ending)
      forget(id) -- until write_finished writes its new place
    else
      mark(id, delivery, ending)
      marks = marks + 1
      word = 'cancelling'
    end
  end
  words[#words + 1] = word
end
commit()
if marks > 0 then tell('bell', 'cancel') end
return table.concat(words, ' ')
