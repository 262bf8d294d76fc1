-- delivery: entries that leave a ready stream. Uses stamp, record, index, train.
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
    for from = 1, #entries, 2000 do
      local upto = math.min(from + 1999, #entries)
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

-- What of an entry is still this entry's: its ids; their lane, where it is a train; the record of the first.
local function unsettled(band, entry)
  local found = redis.call('XRANGE', base .. 'ready:' .. band, entry, entry)
  if not found[1] then return {} end
  local fields = found[1][2]
  local id, record = fields[1], fields[2]
  if id == '' then
    local lane = string.sub(record, 1, 8)
    local settled = settled_of(lane, band .. entry)
    if settled then
      local ids = ids_of_train(fields, settled)
      if not ids[1] then return {} end
      return ids, lane, records_of({ids[1]})[1]
    end
  end
  look_up({id})
  local place = place_of(id)
  if place == 'r' .. band .. entry or (not place and not is_record(record)) then
    return {id}, nil, stamped(record, entry)
  end
  return {}
end
