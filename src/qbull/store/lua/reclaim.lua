-- reclaim: take back the deliveries of a dead worker. Each becomes a new entry, so the old fence is worth nothing.
-- A job that was running when its worker died has one crash more; at the limit it is dead. Where nobody saw what was
-- running (blind), the first job of each entry is suspected, but never beyond the number that makes it run alone:
-- from there on only a job that marked its start counts, so no neighbour is ever blamed to death. Nor is one that was
-- handed over only now: the server may still serve the blocked read of a worker that has stopped.
-- KEYS  base
-- NAMES index parked lanes bands stats kept
-- USES  clock stamp record index tell ready lane delivery extras finish stats
-- FLAGS allow-oom
-- ARGV  limit:int halt:int failed:int failed_ms:int consumer most:int crash_limit:int blind_ms:int ending  … started
--       blind_ms: -1 where somebody saw what was running, else how long a suspect must have been handed over
--       started: <band><entry> of each delivery that was running; ending: what to seal behind the record of a job that is dead
-- GIVES how many deliveries were taken back, how many jobs of them are dead, and 1 where there may be more
local running = {}
for i = rest, #ARGV do running[ARGV[i]] = true end

local streams = {'0', '5'}
for _, band in ipairs(redis.call('SMEMBERS', bands)) do streams[#streams + 1] = band end

local taken, dead, freed, more = 0, 0, {}, 0
for _, band in ipairs(streams) do
  local stream = base .. 'ready:' .. band
  local pending = redis.pcall('XPENDING', stream, 'workers', '-', '+', most - taken, consumer)
  if not pending.err then
    for _, delivery in ipairs(pending) do
      local entry = delivery[1]
      local mine = unsettled(band, entry)
      local id, record = mine[1], mine[2]
      taken = taken + 1
      leave(band, entry)
      if id and is_record(record) then
        local crashes = crashes_of(record)
        local guilty = running[band .. entry]
        if blind_ms >= 0 then
          local marked = redis.call('HGET', base .. 'job:' .. id, 'alone') == band .. entry
          guilty = delivery[3] >= blind_ms and (crashes < crash_limit - 1 or marked)
        end
        if guilty then
          record = with_crashes(record, crashes + 1)
          mine[2] = record
        end
        if crashes_of(record) >= crash_limit then
          dead = dead + 1
          local lane = lane_of(record)
          table.remove(mine, 1)
          table.remove(mine, 1)
          if lane then record = holding(record, halt == 1) end
          if lane and halt == 1 then
            back_to_lane(lane, mine)
            mine = {}
          elseif lane then
            counts[lane] = lane_count(lane) - 1
            if #mine == 0 then freed[#freed + 1] = lane end
          end
          finish('failed', failed, id, stamped(record, entry) .. ending)
        end
      end
      if #mine > 0 then add_ready('0', mine, entry) end
    end
    if taken >= most then
      more = 1
      break
    end
    if #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', stream, 'workers', consumer) end
  end
end
write_bundle('failed')
release(freed)
write_leaving()
write_index()
write_lanes()
if dead > 0 then
  count_up({failed = dead, crashed = dead})
  trim('failed', failed, failed_ms, 1000)
end
return {taken, dead, more}
