-- delivery: the jobs of an entry that a worker has, or had.
-- NEEDS base
-- USES  stamp record_layout record index train
-- An entry that is there although the index does not name it: another program wrote it into the stream. It is
-- not dropped
-- silently but becomes a dead letter where it is no record, and else a job without a lane, because none has
-- counted it.
-- What it is to be kept as: its fields in a row, so that nothing takes them for a record.
local function foreign_record(fields)
  if is_record(fields[2]) then return laneless(fields[2]) end
  return 'fields ' .. table.concat(fields, ' ')
end

-- What is to name it: what it says itself, unless that is a job already or nothing that a job can be called.
local named = {}
local function foreign_id(id, place)
  if place_of(id) or named[id] or #id > 200 or not string.find(id, '^[%w%p]+$') then
    local n = 1
    id = 'foreign-' .. place
    while named[id] do
      n = n + 1
      id = 'foreign-' .. place .. '-' .. n
    end
  end
  named[id] = true
  return id
end

-- What of an entry is still this entry's: its ids; their lane, where it is a train; the record of the first.
local function unsettled(band, entry)
  local found = redis.call('XRANGE', base .. 'ready:' .. band, entry, entry)
  if not found[1] then return {} end
  local fields = found[1][2]
  local id, record = fields[1], fields[2]
  if id == '' then
    local lane = string.sub(record, 1, KEY_LANE_BYTES)
    local settled = settled_of(lane, band .. entry)
    if settled then
      local ids = ids_of_train(fields, settled)
      if not ids[1] then return {} end
      return ids, lane, records_of({ids[1]})[1]
    end
  end
  look_up({id})
  local place = place_of(id)
  if place == 'r' .. band .. entry then return {id}, nil, stamped(record, entry) end
  if place and is_record(record) then return {} end
  return {foreign_id(id, band .. entry)}, nil, stamped(foreign_record(fields), entry)
end
