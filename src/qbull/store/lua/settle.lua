-- settle: record the outcomes of a batch of deliveries. An outcome of a delivery that the worker has lost is
-- refused.
-- KEYS  base
-- NAMES delayed cancelling
-- USES  clock stamp record_layout record report index flow ready train lane next_jobs due delivery
-- USES  dropped_entries extras stats finish cancel_mark parking signals errors start_anew
-- FLAGS allow-oom
-- ARGV  limit:int ordered:int halt:int completed:int completed_ms:int failed:int failed_ms:int
-- ARGV  singles:int members:int  …
--       ordered: 1 if the jobs of a lane run in order. A job then holds its lane until its next attempt
--       singles (a number of arguments): level, how many, their entries, and for each
--         id, record with ending: completed jobs that were alone in their entry
--       members (likewise): lane, state, next, how many, and for each id, record with ending: completed
--         jobs of a train; `state` is the state that the train must have (lib/train.lua), `next` its state
--         after them: '' if it ends with them, '-' if the rest goes back, so that others have their turn
--       the others: place, lane, state, id, word, last, record, detail: word is "dead" and the kind of error
--         (lib/errors.lua), "cancel" or "done", with its ending as detail, or "delay" (another attempt) or
--         "later" (the same one) with milliseconds, or "sleep" or "pass" (the same one, and others of its
--         lane may pass) with its due time and, if it waits for signals, the newest one that it knows, or
--         "anew" (a durable job runs again in its place, and its history is deleted), or
--         "park" with what it needs of a worker (lib/parking.lua);
--         lane and state are '' for a job that was alone in its entry
--       place is <level><entry>
-- GIVES the ids whose outcomes were refused
local stale = {}
kept_completed, kept_completed_ms = completed, completed_ms
local members_at = rest + singles
local others_at = members_at + members

local function done(list, from, upto)
  if marked then drop_marks(list, from, upto, 2) end
  if completed ~= 0 then
    finish('completed', list, from, upto)
  else
    count_ended('completed', list, from, upto)
    local followed = has_followers()
    for i = from, upto, 2 do
      forget(list[i])
      if (string.byte(list[i + 1], FLAGS_AT) or 0) > HOLDS_LANE_FLAG then
        report_done(list[i], list[i + 1])
        tell_flow('c', list[i], list[i + 1])
      elseif followed then
        tell_followers('c', list[i], list[i + 1])
      end
      if has_extras then forget_extras(list[i]) end
    end
  end
end

local function leave_lane(lane, is_last)
  counts[lane] = lane_count(lane) - 1
  if is_last then free_lane(lane) end
end

-- Without an order, a job that sleeps, or waits for its next attempt or for a worker's code, leaves its slot
-- to others of its lane. One that waits for the rate of its lane stays: the others have no starts either.
local function gives_up_slot(lane, word, record, detail)
  if ordered == 1 or #lane == SINGLE_LANE_BYTES or has_flag(record, KEEPS_LANE_FLAG) then return false end
  return word == 'park' or word == 'sleep' or (word == 'delay' and tonumber(detail) > 0)
end

-- A signal may have come while the job was about to leave its worker: then it stays awake.
local function end_of_sleep(id, detail)
  local due, seen = string.match(detail, '^(%d+) ?(%d*)$')
  if seen ~= '' and signals_of(id) > tonumber(seen) then return now_ms end
  return tonumber(due)
end

local lane_at = {} -- by the argument of its record: the lane of a completed job that was alone in its entry
do -- read all lanes and trains at once
  local list, n, of_trains, m = {}, 0, {}, 0
  local i = rest
  while i < members_at do
    local many = tonumber(ARGV[i + 1])
    for j = i + 3 + many, i + 1 + 3 * many, 2 do
      local lane = lane_of(ARGV[j])
      if lane then
        n = n + 1
        list[n], lane_at[j] = lane, lane
      end
    end
    i = i + 2 + 3 * many
  end
  while i < others_at do
    n, m = n + 1, m + 1
    list[n], of_trains[m] = ARGV[i], ARGV[i]
    i = i + 4 + 2 * tonumber(ARGV[i + 3])
  end
  load_lanes(list)
  load_trains(of_trains)
end

do -- completed jobs
  local at = rest
  while at < members_at do
    local level, many = ARGV[at], tonumber(ARGV[at + 1])
    local stream, first, last = base .. 'ready:' .. level, at + 2, at + 1 + many
    local list, from, upto, lane_of_each = ARGV, last + 1, last + 2 * many, lane_at
    -- Entries that are still pending belong to the worker: reclaim acknowledges those that it takes back.
    -- Only if some are not pending, the index has to decide which.
    if redis.call('XACK', stream, 'workers', unpack(ARGV, first, last)) ~= many then
      local ids, ours = {}, {}
      lane_of_each = {}
      for i = from, upto, 2 do ids[#ids + 1] = ARGV[i] end
      look_up(ids)
      for i, id in ipairs(ids) do
        if place_of(id) == 'r' .. level .. ARGV[first + i - 1] then
          ours[#ours + 1] = id
          ours[#ours + 1] = ARGV[from + 2 * i - 1]
          lane_of_each[#ours] = lane_at[from + 2 * i - 1]
        else
          stale[#stale + 1] = id
        end
      end
      list, from, upto = ours, 1, #ours
    end
    redis.call('XDEL', stream, unpack(ARGV, first, last))
    done(list, from, upto)
    if next(lane_of_each) then
      for i = from + 1, upto, 2 do
        if lane_of_each[i] then leave_lane(lane_of_each[i], true) end
      end
    end
    at = at + 2 + 3 * many
  end

  local few, n = {}, 0 -- jobs of trains that would not fill an entry of finished jobs alone
  while at < others_at do
    local lane, state, following, many = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
    local from, upto = at + 4, at + 3 + 2 * many
    if train_state(lane) ~= state then
      for i = from, upto, 2 do stale[#stale + 1] = ARGV[i] end
    else
      if many >= BUNDLE then
        done(ARGV, from, upto)
      else
        for i = from, upto do
          n = n + 1
          few[n] = ARGV[i]
        end
      end
      counts[lane] = lane_count(lane) - many
      behind = behind - many
      local ends = following == '' or following == '-'
      local level, entry = string.match(state, '^(.)(%S+)')
      if following == '-' then
        local ids = unsettled(level, entry)
        back_to_lane(lane, (without_marked({unpack(ids, many + 1)}, lane)))
      end
      set_train(lane, not ends and following)
      if ends then
        free_lane(lane)
        drop_entry(level, entry)
      end
    end
    at = upto + 1
  end
  if n > 0 then done(few, 1, n) end
end

for i = others_at, #ARGV, 8 do
  local place, lane, state, id, word = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local is_last, record, detail = ARGV[i + 5] == '1', ARGV[i + 6], ARGV[i + 7]
  local level, entry = string.sub(place, 1, 1), string.sub(place, 2)
  local in_train = lane ~= ''
  local ours, foreign, kind
  if string.sub(word, 1, 5) == 'dead ' then word, kind = 'dead', string.sub(word, 6) end
  if in_train then
    ours = train_state(lane) == state
  else
    look_up({id})
    ours = place_of(id) == 'r' .. place
    foreign = not ours and redis.call('XRANGE', base .. 'ready:' .. level, entry, entry)[1]
    lane = not foreign and is_record(record) and lane_of(record)
  end
  if foreign and (word == 'dead' or not place_of(id)) then
    local name = foreign_id(id, place)
    if name ~= id and not place_of(id) then forget_extras(id) end
    ours, id, record = true, name, is_record(record) and laneless(record) or foreign_record(foreign[2])
  elseif foreign then
    drop_entry(level, entry)
  end
  if not ours then
    stale[#stale + 1] = id
    if not in_train and not place_of(id) then forget_extras(id) end
  else
    local delays = not (word == 'done' or word == 'cancel' or word == 'dead')
    local leaves = lane and delays and gives_up_slot(lane, word, record, detail)
    local keeps_lane = lane and not leaves and (delays or (word == 'dead' and halt == 1)) and word ~= 'pass'
    local stops = delays and mark_of(id)
    if marked then redis.call('HDEL', cancelling, id) end
    record = stamped(record, entry)
    if lane and is_record(record) then
      record = with_flag(holding(record, keeps_lane), RETURNS_TO_LANE_FLAG, leaves)
    end
    if in_train then
      behind = behind - 1
      if keeps_lane and not is_last then
        local ids = unsettled(level, entry)
        table.remove(ids, 1)
        back_to_lane(lane, (without_marked(ids, lane)))
      end
      local settled = tonumber(string.match(state, ' (%d+)$') or 0) + 1
      set_train(lane, not is_last and not keeps_lane and place .. ' ' .. settled)
    end
    if word == 'done' then
      done({id, record .. detail}, 1, 2)
    elseif word == 'cancel' or stops then
      finish_cancelled(id, record, stops or detail)
    elseif word == 'dead' then
      finish('failed', {id, record .. detail}, 1, 2)
      if kind then count_error(kind, id) end
    elseif word == 'park' then
      report('w', id, record, REPORT_ALL_FLAG)
      park(id, detail, record)
      put(id, 'd' .. record)
    elseif word == 'sleep' or word == 'pass' then
      redis.call('ZREM', base .. 'expiring', id) -- it has started once
      report('d', id, record, REPORT_ALL_FLAG)
      watch(delayed, id, end_of_sleep(id, detail))
      put(id, 'd' .. record)
    elseif word == 'anew' then
      redis.call('ZREM', base .. 'expiring', id) -- it has started once
      start_anew(id)
      report('w', id, record, REPORT_ALL_FLAG)
      add_ready(level_of(record), id, record, entry)
    else
      if word == 'delay' then
        count_up('retried', 1)
        redis.call('ZREM', base .. 'expiring', id) -- it has started once
      end
      local delay = tonumber(detail)
      report(delay > 0 and 'd' or 'w', id, record, REPORT_ALL_FLAG)
      if delay > 0 then
        watch(delayed, id, next_ms + delay)
        put(id, 'd' .. record)
      else
        add_ready(level_of(record), id, record, entry)
      end
    end
    if lane and (stops or not keeps_lane) then leave_lane(lane, is_last or (stops and keeps_lane)) end
    if is_last or keeps_lane or not lane then drop_entry(level, entry) end
  end
end

commit()
return stale
