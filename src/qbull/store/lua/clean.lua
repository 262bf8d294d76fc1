-- clean: delete finished jobs that ended before a time, the oldest first. A lane that one of them halted goes
-- on.
-- KEYS  base
-- USES  clock record index extras take idempotent stats
-- FLAGS allow-oom
-- ARGV  token limit:int stream age_ms:int most:int
-- GIVES how many were deleted, and 1 if there may be more of that age
local before = answered(token)
if before then return before end

local letter = ({completed = 'c', failed = 'f', cancelled = 'x'})[stream]
local last = string.format('%.0f', now_ms - age_ms)
local has_extras = redis.call('EXISTS', base .. 'extras') == 1
local removed, after, more = 0, '-', true

local function clean_entry(found)
  local place, ids = letter .. found[1], {}
  touched[place] = {found[2], 0}
  for i = 1, #found[2], 2 do ids[#ids + 1] = found[2][i] end
  look_up(ids)
  for _, id in ipairs(ids) do
    if removed < most and place_of(id) == place then
      local finished = take_finished(id, place)
      if stream == 'failed' and holds_lane(finished) then leave_its_lane(finished) end
      forget(id)
      if has_extras then forget_extras(id) end
      removed = removed + 1
    end
  end
end

while more and removed < most do
  local entries = redis.call('XRANGE', base .. stream, after, last, 'COUNT', 32)
  for _, found in ipairs(entries) do
    if removed < most then clean_entry(found) end
    after = '(' .. found[1]
  end
  more = #entries == 32
end
count_up('removed', removed)
commit()
return answer(token, removed > 0, {tostring(removed), (more or removed >= most) and '1' or '0'})
