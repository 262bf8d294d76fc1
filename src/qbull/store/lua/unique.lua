-- unique: add jobs to a partition. Of those with the same name only one wins within its window.
-- KEYS  base
-- NAMES delayed
-- USES  stamp record_layout record index ready lane due new_job state stats idempotent parked reschedule
-- A closed partition adds no jobs, but a winner there stays the winner until its window ends.
-- ARGV  limit:int  … id when record name mode window_ms counts counts_ms
--       when: as in lib/new_job.lua
--       counts, counts_ms: the winner according to an older partition, and for how long; empty if there is
--       none
-- GIVES "open" and for each job: the winner's id, and "new" or "known". Or the mark of a closed partition
--       ("closed …") and for each job: the winner's id or '', a word, the milliseconds left of its window.
--       The word is "new", "known", "elsewhere" (another partition decides), or "moving" (the winner is on
--       its way there: ask again)

-- The old job with the priority, time and body of the new one. It keeps its lane and its crashes.
local function renewed(old, new)
  new = stamped(new)
  return string.sub(old, 1, PRIORITY_AT - 1) .. string.sub(new, PRIORITY_AT, PRIORITY_AT)
    .. string.sub(old, PRIORITY_AT + 1, CREATED_AT - 1) .. string.sub(new, CREATED_AT, LANE_LENGTH_AT - 1)
    .. string.sub(old, LANE_LENGTH_AT, body_at(old) - 1) .. string.sub(new, body_at(new))
end

-- A durable job has recorded steps: they belong to its own arguments.
local function has_history(id)
  return redis.call('HEXISTS', base .. 'job:' .. id, 'step:1') == 1
end

-- Give a waiting job the newer arguments, unless a worker holds it, it has a history, or it has finished.
local function renew(id, place, record)
  local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
  if has_history(id) then return false end
  if kind == 'd' then
    put(id, 'd' .. renewed(at, record))
  elseif kind == 'l' then
    write_joining()
    local train = train_of(id, lane_of(at))
    if train and handed_over(train) then return false end
    put(id, 'l' .. renewed(at, record))
  elseif kind == 'r' and not handed_over(at) then
    local stream, entry = base .. 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
    local old = redis.call('XRANGE', stream, entry, entry)[1][2][2]
    redis.call('XDEL', stream, entry)
    add_ready(level_of(record), id, renewed(old, record), entry)
  else
    return false
  end
  return true
end

-- The newest call decides when the job expires. The same call sent again changes nothing: the job may have
-- started with its arguments.
local function renewed_by(call, id, when)
  answer(call, true, {id})
  local ends = expires_at(when)
  if ends then watch(base .. 'expiring', id, ends) else redis.call('ZREM', base .. 'expiring', id) end
end

local winners = {} -- by name; false if none counts
do -- read all of them at once
  local ids, names, others = {}, {}, {}
  for i = rest, #ARGV, 8 do
    ids[#ids + 1] = ARGV[i]
    names[#names + 1] = base .. 'unique:' .. ARGV[i + 3]
  end
  for from = 1, #names, 2000 do
    local upto = math.min(from + 1999, #names)
    local found = redis.call('MGET', unpack(names, from, upto))
    for i = from, upto do
      winners[names[i]] = found[i - from + 1]
      others[#others + 1] = winners[names[i]] or nil
    end
  end
  look_up(ids)
  look_up(others)
end

local added = 0
local closed = is_closed()
local answers = {closed and mark_of_partition() or 'open'}
for i = rest, #ARGV, 8 do
  local id, when, record, mode = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local name, window_ms = base .. 'unique:' .. ARGV[i + 3], ARGV[i + 5]
  if ARGV[i + 6] ~= '' and not closed and not winners[name] then
    redis.call('SET', name, ARGV[i + 6], 'PX', ARGV[i + 7])
    winners[name] = ARGV[i + 6]
    if not place_of(winners[name]) then look_up({winners[name]}) end
  end
  local counts_now = winners[name]
  local place = counts_now and place_of(counts_now)
  local is_new = counts_now == id or place_of(id)
  local renewed_before = not is_new and mode ~= 'first' and answered(id)
  local word
  if is_new then -- the same call was sent before
    counts_now = id
  elseif renewed_before then
    counts_now, is_new = renewed_before, false
  elseif counts_now and mode == 'first' then
    is_new = false
  elseif place and string.sub(place, 1, 1) == 'm' then
    word = 'moving'
  elseif
    place and mode == 'debounce' and string.sub(place, 1, 1) == 'd' and not is_parked(counts_now)
    and renew(counts_now, place, record)
  then
    watch(delayed, counts_now, moment_of(window_ms))
    redis.call('PEXPIRE', name, window_ms)
    renewed_by(id, counts_now, when)
  elseif place and mode ~= 'debounce' and renew(counts_now, place, record) then
    if mode == 'after' then redis.call('PEXPIRE', name, window_ms) end
    if mode == 'reschedule' then
      reschedule(counts_now, place_of(counts_now), moment_of(string.match(when, '^%S+')))
    end
    renewed_by(id, counts_now, when)
  elseif closed then
    counts_now, word = counts_now or '', 'elsewhere'
  else
    add_job(id, mode == 'debounce' and window_ms .. (string.match(when, ' .+$') or '') or when, record)
    redis.call('SET', name, id, 'PX', window_ms)
    winners[name] = id
    counts_now, is_new, added = id, true, added + 1
  end
  answers[#answers + 1] = counts_now
  answers[#answers + 1] = word or is_new and 'new' or 'known'
  if closed then answers[#answers + 1] = redis.call('PTTL', name) end
end
count_up('enqueued', added)
commit()
return answers
