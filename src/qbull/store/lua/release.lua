-- release: give back deliveries that the worker will not finish now. This uses up no attempt. Jobs that were
-- told to stop are cancelled. A delivery that is not the worker's is left alone: a failover may have lost
-- that it was, and another worker may have it by now.
-- KEYS  base
-- USES  ready train next_jobs delivery dropped_entries cancel_mark pending
-- FLAGS allow-oom
-- ARGV  limit:int failed:int failed_ms:int worker  … place
--       a place may be named twice: its entry leaves only at the end, and would be found twice
-- GIVES how many jobs were given back
local jobs, seen = 0, {}
for i = rest, #ARGV do
  local level, entry = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2)
  local ids, lane, record = {}, nil, nil
  if not seen[ARGV[i]] and is_pending_for(ARGV[i], worker) then
    ids, lane, record = unsettled(level, entry)
  end
  seen[ARGV[i]] = true
  if ids[1] then
    local free
    drop_entry(level, entry)
    ids, free = without_marked(ids, lane, record)
    if free then free_lane(free) end
    if lane and ids[1] then
      add_train('0', lane, ids, entry)
    elseif lane then
      set_train(lane, false)
    elseif ids[1] then
      add_ready('0', ids[1], record, entry)
    end
    jobs = jobs + #ids
  end
end
commit()
return jobs
