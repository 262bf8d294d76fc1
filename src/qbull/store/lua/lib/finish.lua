-- finish: the streams of finished jobs, kept by count and by age. Uses clock, index.
-- An entry holds up to BUNDLE jobs that finished together: id and record for each, with the ending sealed behind the
-- record (core/job.py); `kept` counts the jobs.
-- Of a job that was removed the record stays behind in its bundle, and the index no longer says that it is there.
local BUNDLE = 16
local LETTER = {completed = 'c', failed = 'f', cancelled = 'x'}
local bundles = {}

local function write_bundle(stream)
  local bundle = bundles[stream]
  if not bundle then return end
  local place = LETTER[stream] .. redis.call('XADD', base .. stream, '*', unpack(bundle))
  for i = 1, #bundle, 2 do put(bundle[i], place) end
  redis.call('HINCRBY', kept, stream, #bundle / 2)
  bundles[stream] = nil
end

-- Where few are to be kept, each has an entry of its own, so that the count is exact.
local function bundle_size(most) return most >= 0 and most < 1000 and 1 or BUNDLE end

local function finish(stream, most, id, sealed)
  local bundle = bundles[stream]
  if not bundle then
    bundle = {}
    bundles[stream] = bundle
  end
  local n = #bundle
  bundle[n + 1] = id
  bundle[n + 2] = sealed
  put(id, 'finished')
  if n + 2 >= bundle_size(most) * 2 then write_bundle(stream) end
end

local function drop_finished(stream, entries)
  local ids, places = {}, {}
  for _, found in ipairs(entries) do
    local place = LETTER[stream] .. found[1]
    for i = 1, #found[2], 2 do
      ids[#ids + 1] = found[2][i]
      places[#places + 1] = place
    end
  end
  local gone = {}
  for from = 1, #ids, 1000 do
    local now = redis.call('HMGET', index, unpack(ids, from, math.min(from + 999, #ids)))
    for i, place in ipairs(now) do
      if place == places[from + i - 1] then gone[#gone + 1] = ids[from + i - 1] end
    end
  end
  redis.call('XTRIM', base .. stream, 'MAXLEN', redis.call('XLEN', base .. stream) - #entries)
  if #gone == 0 then return end
  in_chunks('HDEL', index, gone)
  redis.call('HINCRBY', kept, stream, -#gone)
  if redis.call('EXISTS', base .. 'extras') == 1 then
    for _, id in ipairs(gone) do forget_extras(id) end
  end
end

-- Drop the oldest beyond `most` and those older than `age_ms` (-1: no bound of that kind), about `bound` jobs a call.
local function trim(stream, most, age_ms, bound)
  local over = 0
  if most >= 0 then over = math.min(tonumber(redis.call('HGET', kept, stream) or 0) - most, bound) end
  local entries = {}
  if over > 0 then
    local count = math.ceil(over / bundle_size(most)) + 1
    for _, found in ipairs(redis.call('XRANGE', base .. stream, '-', '+', 'COUNT', count)) do
      over = over - #found[2] / 2
      if over < 0 then break end
      entries[#entries + 1] = found
    end
  end
  if age_ms >= 0 and #entries == 0 then
    local oldest = string.format('%.0f', now_ms - age_ms)
    entries = redis.call('XRANGE', base .. stream, '-', oldest, 'COUNT', math.ceil(bound / BUNDLE))
  end
  if #entries > 0 then drop_finished(stream, entries) end
end
