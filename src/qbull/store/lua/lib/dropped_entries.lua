-- dropped_entries: collects the entries that leave a ready stream.
-- NEEDS base
-- COMMIT write_dropped_entries
local dropped = {}

local function drop_entry(level, entry)
  local list = dropped[level]
  if not list then
    list = {}
    dropped[level] = list
  end
  list[#list + 1] = entry
end

local function write_dropped_entries()
  for level, entries in pairs(dropped) do
    local stream = base .. 'ready:' .. level
    for from = 1, #entries, 2000 do
      local upto = math.min(from + 1999, #entries)
      redis.call('XACK', stream, 'workers', unpack(entries, from, upto))
      redis.call('XDEL', stream, unpack(entries, from, upto))
    end
  end
end
