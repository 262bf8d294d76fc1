-- schedule_run: run a schedule now, outside its plan. A job whose id is already there is not added again.
-- KEYS  base
-- USES  clock index new_job schedule_runs stats
-- ARGV  limit:int name id when record
--       when: as in lib/new_job.lua
-- GIVES 1 if the job was added
look_up({id})
if place_of(id) then return 0 end
add_job(id, when, record)
count_up('enqueued', 1)
commit()
local state = base .. 'schedule:' .. name
if redis.call('EXISTS', state) == 1 then
  redis.call('HSET', state, 'manual', id, 'manual_at', now_ms)
  add_runs(state, now_ms, {id, '-'})
end
return 1
