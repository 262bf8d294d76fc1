-- call_answer: tell durable jobs of this partition that jobs which they have called have ended. The outcome
-- is kept in the data of the caller until its history has it (history_write.lua), and a caller that waits is
-- woken up. The same message sent again changes nothing.
-- KEYS  base
-- USES  record_layout record body_value index parked signals signal_changes wake_up
-- FLAGS allow-oom
-- ARGV  limit:int  … id name letter told
--       id: the caller; name: of the call; letter, told: as in lib/flow.lua
-- GIVES a word for each: "joined", "known", "unknown" (it is not here), "again" (it is moving to another
--       partition: ask again)
local words, ids = {}, {}
for i = rest, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
look_up(ids)

local function answer_call(id, place, name, letter, told)
  local job, field = job_of(id), 'call:' .. name
  if string.sub(redis.call('HGET', job, field) or '', 1, 1) ~= 'w' then return 'known' end
  redis.call('HSET', job, field, letter .. told)
  local last, waiting = signals_of(id)
  set_signals(id, last + 1, waiting) -- a caller that is about to leave its worker stays awake
  local record = string.sub(place, 2)
  if string.sub(place, 1, 1) == 'd' and is_record(record) and not is_parked(id) then
    local reason = value_of(record, body_at(record), SUSPENDED_VALUE)
    if reason == 'calling' or reason == 'waiting' then wake_up(id, record) end
  end
  return 'joined'
end

for i = rest, #ARGV, 4 do
  local place = place_of(ARGV[i])
  local word
  if not place then
    word = 'unknown'
  elseif string.sub(place, 1, 1) == 'm' then
    word = 'again'
  else
    word = answer_call(ARGV[i], place, unpack(ARGV, i + 1, i + 3))
  end
  words[#words + 1] = word
end
commit()
return table.concat(words, ' ')
