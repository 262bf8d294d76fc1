-- clean: finished jobs that ended before a moment go, the oldest first. What halted its lane lets it go on.
-- KEYS  base
-- NAMES index delayed lanes trains bands kept stats
-- USES  clock stamp record index tell ready train lane extras delivery take once stats
-- FLAGS allow-oom
-- ARGV  token limit:int stream age_ms:int most:int
-- GIVES how many went, and 1 where there may be more of that age
local before = answered(token)
if before then return before end

local last = string.format('%.0f', now_ms - age_ms)
local entries = redis.call('XRANGE', base .. stream, '-', last, 'COUNT', math.ceil(most / 16)) -- 16 jobs in each at most
local removed = 0
for _, found in ipairs(entries) do
  local place = string.sub(stream == 'cancelled' and 'x' or stream, 1, 1) .. found[1]
  touched[place] = found[2]
  local ids = {}
  for i = 1, #found[2], 2 do ids[#ids + 1] = found[2][i] end
  look_up(ids)
  for i, id in ipairs(ids) do
    if removed < most and place_of(id) == place then
      local sealed = take_finished(id, place)
      if stream == 'failed' and holds_lane(sealed) then leave_its_lane(sealed) end
      forget(id)
      forget_extras(id)
      removed = removed + 1
    end
  end
end
write_taken()
count_up({removed = removed})
return answer(token, removed > 0, {tostring(removed), #entries == math.ceil(most / 16) and '1' or '0'})
