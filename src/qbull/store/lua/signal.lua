-- signal: keep a signal for a durable job until its task takes it (history_write.lua), and wake the job up if
-- it waits for a signal with this name. A signal whose id the job has had is not kept again.
-- KEYS  base
-- NAMES extras
-- USES  record_layout record body_value index parked state idempotent signals signal_changes wake_up
-- ARGV  token limit:int most:int most_bytes:int id name digest stored
--       most, most_bytes: how many signals may wait, and their size
-- GIVES "sent", "full", "unknown", "moving" (to another partition just now), or the state of a finished job
local before = answered(token)
if before then return before end

-- Whether a delayed job waits for this signal.
local function waits_for_it(record)
  if not is_record(record) then return false end
  for _, one in ipairs(value_of(record, body_at(record), WAITS_FOR_VALUE) or {}) do
    if one == name then return true end
  end
  return false
end

look_up({id})
local place = place_of(id)
if not place then return 'unknown' end
local kind = string.sub(place, 1, 1)
if kind == 'm' then return 'moving' end
local job = job_of(id)
local digests = redis.call('HGET', job, 'signaled') or ''
for from = 1, #digests, 16 do
  if string.sub(digests, from, from + 15) == digest then return answer(token, true, {'sent'}) end
end
if kind ~= 'd' and STATE[kind] then return STATE[kind] end

local last, waiting = signals_of(id)
local bytes = #stored
for _, number in ipairs(waiting) do bytes = bytes + #redis.call('HGET', job, 'signal:' .. number) end
if #waiting >= most or bytes > most_bytes then return 'full' end
last = last + 1
waiting[#waiting + 1] = string.format('%.0f', last)
redis.call('SADD', extras, id)
redis.call('HSET', job, 'signal:' .. waiting[#waiting], stored)
redis.call('HSET', job, 'signaled', string.sub(digests .. digest, -16 * most))
set_signals(id, last, waiting)
if kind == 'd' and not is_parked(id) and waits_for_it(string.sub(place, 2)) then
  wake_up(id, string.sub(place, 2))
end
commit()
return answer(token, true, {'sent'})
