-- reschedule: give a job that has not started another due time.
-- KEYS  base
-- USES  index new_job reschedule idempotent
-- FLAGS allow-oom
-- ARGV  token limit:int id when
--       when: as in lib/new_job.lua
-- GIVES "rescheduled" and its state; or "unknown", "moving" (to another partition just now), "dependent" (it
--       waits for other jobs of its flow), or the state that it is in instead
local before = answered(token)
if before then return before end

look_up({id})
local place = place_of(id)
if not place then return 'unknown' end
local state, instead = reschedule(id, place, moment_of(when))
if not state then return instead end
commit()
return answer(token, true, {'rescheduled', state})
