-- reclaim: take back the deliveries of a dead worker. Each becomes a new entry, which invalidates the old
-- fence. A job that was running when its worker died gets one more crash; at the limit it becomes a dead
-- letter. If nobody saw which jobs were running (blind), the first job of each entry is suspected, but only
-- up to the number of crashes from which on it runs alone. Beyond that number only a job that marked its
-- start counts, so no neighbour is ever blamed to death. A job that was delivered only just now is not
-- suspected either: the server may still serve the blocked read of a worker that has stopped. Jobs that were
-- told to stop are cancelled.
-- KEYS  base
-- USES  record index ready train lane next_jobs delivery dropped_entries stats finish cancel_mark used_levels
-- USES  errors
-- FLAGS allow-oom
-- ARGV  limit:int halt:int failed:int failed_ms:int consumer most:int crash_limit:int blind_ms:int
-- ARGV  kind ending  … started
--       started: <level><entry> of each delivery that was running; ending: what to append to the record of a
--       dead job; kind: of its error (lib/errors.lua)
--       blind_ms: -1 if it is known which jobs were running, else how long a suspect must have been delivered
-- GIVES how many deliveries were taken back, how many jobs of them are dead, and 1 if there may be more
local running = {}
for i = rest, #ARGV do running[ARGV[i]] = true end

local streams = used_levels()

local taken, dead, more = 0, 0, 0
for _, level in ipairs(streams) do
  local stream = base .. 'ready:' .. level
  local pending = redis.pcall('XPENDING', stream, 'workers', '-', '+', most - taken, consumer)
  if not pending.err then
    for _, delivery in ipairs(pending) do
      local entry = delivery[1]
      local ids, lane, record = unsettled(level, entry)
      local is_train, first, free = lane ~= nil, ids[1], nil
      ids, free = without_marked(ids, lane, record)
      local id = ids[1]
      taken = taken + 1
      drop_entry(level, entry)
      if free then free_lane(free) end
      if free and is_train then set_train(lane, false) end
      if id and id == first and is_record(record) then
        local crashes = crashes_of(record)
        local guilty = running[level .. entry]
        if blind_ms >= 0 then
          local marked = redis.call('HGET', base .. 'job:' .. id, 'alone') == level .. entry
          guilty = delivery[3] >= blind_ms and (crashes < crash_limit - 1 or marked)
        end
        if guilty then
          redis.call('ZREM', base .. 'expiring', id) -- it has started once
          crashes = crashes + 1
          record = with_crashes(record, crashes)
          if is_train then put(id, 'l' .. record) end
        end
        if guilty and crashes >= crash_limit then
          dead = dead + 1
          lane = lane_of(record)
          if lane then record = holding(record, halt == 1) end
          forget(id) -- until finish writes its new place
          finish('failed', {id, record .. ending}, 1, 2)
          count_error(kind, id)
          table.remove(ids, 1)
          if is_train then
            behind = behind - 1
            set_train(lane, false)
          end
          if lane and halt == 1 then
            back_to_lane(lane, ids)
            ids = {}
          elseif lane then
            counts[lane] = lane_count(lane) - 1
            if #ids == 0 then free_lane(lane) end
          end
        end
      end
      if is_train and ids[1] then
        add_train('0', lane, ids, entry)
      elseif ids[1] then
        add_ready('0', ids[1], record, entry)
      end
    end
    if taken >= most then
      more = 1
      break
    end
    if #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', stream, 'workers', consumer) end
  end
end
count_up('crashed', dead)
commit()
return {taken, dead, more}
