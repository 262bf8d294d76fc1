-- remove: delete jobs permanently. A lane that one of them halted goes on. A job that a worker holds stays.
-- KEYS  base
-- USES  record report index flow extras take idempotent stats
-- FLAGS allow-oom
-- ARGV  token limit:int  … id place
--       place: its place when it was seen; empty to remove it from any place
-- GIVES a word for each: "removed", "active", "moved" (its place has changed), "moving" (to another partition
--       just now), "unknown"
local before = answered(token)
if before then return before end

local ids, words, removed = {}, {}, 0
for i = rest, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
look_up(ids)
for i = rest, #ARGV, 2 do
  local id, place = ARGV[i], ARGV[i + 1]
  local now = place_of(id)
  local word = 'removed'
  if not now then
    word = 'unknown'
  elseif place ~= '' and now ~= place then
    word = 'moved'
  elseif string.find('cfx', string.sub(now, 1, 1), 1, true) then
    local finished = take_finished(id, now)
    if string.sub(now, 1, 1) == 'f' and holds_lane(finished) then leave_its_lane(finished) end
  elseif string.sub(now, 1, 1) == 'm' then
    word = 'moving'
  else
    local record = take_waiting(id, now)
    if record then
      report('-', id, record)
      tell_flow('-', id, record)
    else
      word = 'active'
    end
  end
  if word == 'removed' then
    forget(id)
    forget_extras(id)
    removed = removed + 1
  end
  words[#words + 1] = word
end
count_up('removed', removed)
commit()
return answer(token, removed > 0, words)
