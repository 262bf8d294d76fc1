-- delivery: the jobs of an entry that a worker holds, or has held.
-- NEEDS base
-- USES  stamp record_layout record index train
-- An entry that the index does not name was written by another program. It is not dropped silently: a valid
-- record becomes a job without a lane, because no lane has counted it. Anything else becomes a dead letter.

-- The record of such an entry. Fields that are no record are joined into a text that cannot be taken for one.
local function foreign_record(fields)
  if is_record(fields[2]) then return laneless(fields[2]) end
  return 'fields ' .. table.concat(fields, ' ')
end

-- The id of such an entry: its own, unless a job has that id already or no job could have it.
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

-- The unsettled jobs of an entry: their ids, their lane if it is a train, and the record of the first one.
local function unsettled(level, entry)
  local found = redis.call('XRANGE', base .. 'ready:' .. level, entry, entry)
  if not found[1] then return {} end
  local fields = found[1][2]
  local id, record = fields[1], fields[2]
  if id == '' then
    local lane = string.sub(record, 1, KEY_LANE_BYTES)
    local settled = settled_of(lane, level .. entry)
    if settled then
      local ids = ids_of_train(fields, settled)
      if not ids[1] then return {} end
      return ids, lane, records_of({ids[1]})[1]
    end
  end
  look_up({id})
  local place = place_of(id)
  if place == 'r' .. level .. entry then return {id}, nil, stamped(record, entry) end
  if place and is_record(record) then return {} end
  return {foreign_id(id, level .. entry)}, nil, stamped(foreign_record(fields), entry)
end
