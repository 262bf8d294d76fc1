-- health_report: facts that tell whether the jobs of a partition are run.
-- The work is limited: it reads the `looks` delayed jobs that are due first for the lanes behind a retry, and
-- the `letters` newest dead letters for halted lanes.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed lanes bands lease failed schedules kept
-- USES  clock record msgpack lane_lists
-- ARGV  old_ms:int looks:int letters:int
--       old_ms: the readers of a stream are listed if its oldest job has waited for so long
-- GIVES now; how many delayed jobs are due and were not promoted; since when the oldest job that nobody has
--       fetched could run, or 0; the deliveries as worker, number …; the readers as worker, milliseconds
--       since it read …; the owner of the lease, or ''; the lanes behind a retry as first failure, jobs
--       behind …; how many lanes are halted, how many jobs wait behind, since when, or 0; when the next
--       schedule is due, or 0
local oldest = 0
local deliveries, readers = {}, {}

local function note_oldest(ms)
  if ms > 0 and (oldest == 0 or ms < oldest) then oldest = ms end
end

local function last_delivered(stream)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' then return '(' .. group[i + 1] end
    end
  end
  return '-'
end

local function note_readers(stream)
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, 'workers')) do
    local fields = {}
    for i = 1, #consumer, 2 do fields[consumer[i]] = consumer[i + 1] end
    readers[#readers + 1] = fields.name
    readers[#readers + 1] = fields.idle
  end
end

local streams = {'0', '5'}
for _, level in ipairs(redis.call('SMEMBERS', bands)) do streams[#streams + 1] = level end
for _, level in ipairs(streams) do
  local stream = base .. 'ready:' .. level
  local length = redis.call('XLEN', stream)
  local pending = length > 0 and redis.pcall('XPENDING', stream, 'workers') or {err = 'empty'}
  local has_group = not pending.err
  if has_group then
    for _, consumer in ipairs(pending[4] or {}) do
      deliveries[#deliveries + 1] = consumer[1]
      deliveries[#deliveries + 1] = tonumber(consumer[2])
    end
  end
  local unread = length - (has_group and pending[1] or 0)
  if unread > 0 then
    local head = redis.call('XRANGE', stream, has_group and last_delivered(stream) or '-', '+', 'COUNT', 1)[1]
    local since = head and tonumber(string.match(head[1], '^%d+')) or 0
    note_oldest(since)
    if has_group and since > 0 and since <= now_ms - old_ms then note_readers(stream) end
  end
end

local due = redis.call('ZCOUNT', delayed, '-inf', string.format('%.0f', now_ms - old_ms))
if due > 0 then
  note_oldest(tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]))
end

-- The integer at a position: milliseconds take eight bytes.
local function integer_at(s, at)
  if string.byte(s, at) ~= 0xcf then return 0 end
  local n = 0
  for i = 1, 8 do n = n * 256 + (string.byte(s, at + i) or 0) end
  return n
end

-- When its first attempt failed; 0 for a job without a failed attempt (core/record.py, Body and Attempt).
local function first_failure(record)
  local at, many = first_value(record, body_at(record))
  if many < 7 then return 0 end
  for _ = 1, 6 do at = behind_value(record, at) end
  local attempt, attempts = first_value(record, at)
  if attempts == 0 then return 0 end
  return integer_at(record, behind_value(record, (first_value(record, attempt))))
end

-- A lane is blocked if jobs wait in its list, and every job outside the list waits for its next attempt.
local blocked = {}
if tonumber(redis.call('HGET', kept, 'lanes') or 0) > 0 then
  local ids = redis.call('ZRANGE', delayed, 0, looks - 1)
  local places = ids[1] and redis.call('HMGET', index, unpack(ids)) or {}
  local retries = {}
  for _, place in ipairs(places) do
    local record = place and string.sub(place, 2) or ''
    local lane = holds_lane(record) and lane_of(record)
    local since = lane and first_failure(record) or 0
    if since > 0 then
      local of_lane = retries[lane] or {jobs = 0, since = since}
      retries[lane] = {jobs = of_lane.jobs + 1, since = math.min(of_lane.since, since)}
    end
  end
  for lane, waiting in pairs(retries) do
    local behind = lane_lists.length(lane)
    local admitted = tonumber(redis.call('HGET', lanes, lane) or 0)
    if behind > 0 and waiting.jobs == admitted - behind then
      blocked[#blocked + 1] = waiting.since
      blocked[#blocked + 1] = behind
    end
  end
end

local halted, halted_jobs, halted_since = 0, 0, 0
if letters > 0 then
  for _, found in ipairs(redis.call('XREVRANGE', failed, '+', '-', 'COUNT', letters)) do
    local entry, fields = found[1], found[2]
    for i = 1, #fields, 2 do
      local record = fields[i + 1]
      local lane = holds_lane(record) and lane_of(record)
      if lane and redis.call('HGET', index, fields[i]) == 'f' .. entry then
        halted = halted + 1
        halted_jobs = halted_jobs + lane_lists.length(lane)
        halted_since = tonumber(string.match(entry, '^%d+')) -- the last one seen is the oldest
      end
    end
  end
end

local next_tick = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2]
next_tick = tonumber(next_tick or 0)
if next_tick == math.huge then next_tick = 0 end
local owner = redis.call('HGET', lease, 'owner') or ''
return {
  now_ms, due, oldest, deliveries, readers, owner, blocked, halted, halted_jobs, halted_since, next_tick,
}
