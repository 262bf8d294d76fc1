-- delivery: entries that leave a ready stream. Uses stamp, record, index.
local leaving = {}

local function leave(band, entry)
  local list = leaving[band]
  if not list then
    list = {}
    leaving[band] = list
  end
  list[#list + 1] = entry
end

local function write_leaving()
  for band, entries in pairs(leaving) do
    local stream = base .. 'ready:' .. band
    for from = 1, #entries, 1000 do
      local upto = math.min(from + 999, #entries)
      redis.call('XACK', stream, 'workers', unpack(entries, from, upto))
      redis.call('XDEL', stream, unpack(entries, from, upto))
    end
  end
  leaving = {}
end

-- Something that another program wrote into the stream: no index knows it, and it is no record. It is not dropped
-- silently but becomes a dead letter.
local function is_foreign(band, entry, id, record)
  return not place_of(id) and not is_record(record)
    and #redis.call('XRANGE', base .. 'ready:' .. band, entry, entry) > 0
end

-- The jobs of an entry that are still this entry's: id, record, id, record …
local function unsettled(band, entry)
  local found = redis.call('XRANGE', base .. 'ready:' .. band, entry, entry)
  local rest = {}
  if not found[1] then return rest end
  local fields = found[1][2]
  local ids = {}
  for i = 1, #fields, 2 do ids[#ids + 1] = fields[i] end
  look_up(ids)
  for i = 1, #fields, 2 do
    local place = place_of(fields[i])
    if place == 'r' .. band .. entry or (not place and not is_record(fields[i + 1])) then
      rest[#rest + 1] = fields[i]
      rest[#rest + 1] = stamped(fields[i + 1], entry)
    end
  end
  return rest
end
