-- finish: the streams of finished jobs, with retention by count and by age.
-- An entry holds up to BUNDLE jobs that finished together: id and record for each, with the ending appended
-- to the record (core/record.py). `kept` counts the jobs.
-- The record of a removed job stays in its bundle, but the index no longer names it.
-- NEEDS base failed failed_ms
-- NAMES index kept
-- USES  clock record_layout record report index tell flow extras stats
-- COMMIT write_finished trim_finished tell_waiters
local BUNDLE = 16
local LETTER = {completed = 'c', failed = 'f', cancelled = 'x'}

local kept_completed, kept_completed_ms = -1, -1 -- set by settle, the only verb that completes jobs

-- The retention of a stream: number of jobs, and age in milliseconds. -1 means no limit.
local function retention_of(stream)
  if stream == 'completed' then return kept_completed, kept_completed_ms end
  return failed, failed_ms
end

-- If only a few jobs are kept, each has its own entry, so that the count is exact.
local function bundle_size(most) return most >= 0 and most < 1000 and 1 or BUNDLE end

local finished_places, finished_n, finished_counts = {}, 0, {}
-- The ended ids if a client waits for results, false if none does, nil before the first job has ended.
local waiters

-- Count jobs that have ended, whether they are kept or not: id, record … of a list, from one position to
-- another.
local function count_ended(stream, list, from, upto)
  count_up(stream, (upto - from + 1) / 2)
  if waiters == nil then waiters = has_waiters() and {} end
  if waiters then
    for i = from, upto, 2 do waiters[#waiters + 1] = list[i] end
  end
end

-- Add finished jobs: id, record with ending … of a list, from one position to another.
local function finish(stream, list, from, upto)
  local step, followed = bundle_size((retention_of(stream))) * 2, has_followers()
  local letter, byte, finished, n = LETTER[stream], string.byte, finished_places, finished_n
  for at = from, upto, step do
    local last = math.min(at + step - 1, upto)
    local place = letter .. redis.call('XADD', base .. stream, '*', unpack(list, at, last))
    for i = at, last, 2 do
      local id, record = list[i], list[i + 1]
      finished[n + 1], finished[n + 2] = id, place
      n = n + 2
      if (byte(record, FLAGS_AT) or 0) > HOLDS_LANE_FLAG then
        if stream == 'completed' then
          report_done(id, record)
        else
          report(letter, id, record)
        end
        tell_flow(letter, id, record)
      elseif followed then
        tell_followers(letter, id, record)
      end
    end
  end
  finished_n = n
  finished_counts[stream] = (finished_counts[stream] or 0) + (upto - from + 1) / 2
  count_ended(stream, list, from, upto)
end

local function write_finished()
  in_chunks('HSET', index, finished_places)
  for stream, n in pairs(finished_counts) do redis.call('HINCRBY', kept, stream, n) end
end

local trim
do -- a script may have 200 local names
  -- A dead letter that halts its lane is added again as the newest one. If it were dropped, the lane would
  -- never go on.
  local function drop_finished(stream, entries)
    local ids, records, places, n = {}, {}, {}, 0
    for _, found in ipairs(entries) do
      local place, fields = LETTER[stream] .. found[1], found[2]
      for i = 1, #fields, 2 do
        n = n + 1
        ids[n], records[n], places[n] = fields[i], fields[i + 1], place
      end
    end
    local gone, m, halting = {}, 0, {}
    for from = 1, n, 1000 do
      local upto = math.min(from + 999, n)
      local now = redis.call('HMGET', index, unpack(ids, from, upto))
      for i = from, upto do
        if now[i - from + 1] == places[i] then
          if stream == 'failed' and holds_lane(records[i]) then
            halting[#halting + 1] = i
          else
            m = m + 1
            gone[m] = ids[i]
          end
        end
      end
    end
    redis.call('XTRIM', base .. stream, 'MAXLEN', redis.call('XLEN', base .. stream) - #entries)
    for _, i in ipairs(halting) do
      redis.call('HSET', index, ids[i], 'f' .. redis.call('XADD', base .. stream, '*', ids[i], records[i]))
    end
    if m == 0 then return end
    in_chunks('HDEL', index, gone)
    redis.call('HINCRBY', kept, stream, -m)
    if redis.call('EXISTS', base .. 'extras') == 1 then
      for _, id in ipairs(gone) do forget_extras(id) end
    end
  end

  -- The oldest entries up to a time that hold at most `most` jobs together. The size of the earlier entries
  -- serves as an estimate for the next one.
  local function oldest(stream, upto, most)
    local entries, jobs, after, more = {}, 0, '-', true
    while more do
      local each = jobs > 0 and jobs / #entries or BUNDLE
      local count = math.ceil((most - jobs) / each) + 1
      local found = redis.call('XRANGE', base .. stream, after, upto, 'COUNT', count)
      for _, entry in ipairs(found) do
        jobs = jobs + #entry[2] / 2
        if jobs > most then return entries end
        entries[#entries + 1] = entry
        after = '(' .. entry[1]
      end
      more = #found == count
    end
    return entries
  end

  -- Drop the oldest jobs beyond `most`, and those older than `age_ms` (-1: no such limit). One call drops at
  -- most `bound` jobs.
  function trim(stream, most, age_ms, bound)
    local over = 0
    if most >= 0 then over = math.min(tonumber(redis.call('HGET', kept, stream) or 0) - most, bound) end
    local entries = over > 0 and oldest(stream, '+', over) or {}
    if age_ms >= 0 and #entries == 0 then
      entries = oldest(stream, string.format('%.0f', now_ms - age_ms), bound)
    end
    if #entries > 0 then drop_finished(stream, entries) end
  end
end

local function trim_finished()
  for stream in pairs(finished_counts) do
    local most, age_ms = retention_of(stream)
    trim(stream, most, age_ms, 1000)
  end
end

local function tell_waiters()
  if waiters and waiters[1] then tell('done', table.concat(waiters, '\n')) end
end
