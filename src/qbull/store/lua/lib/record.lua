-- record: the header of a job's record, laid out in core/record.py.
local BANDS = '0123456789a'

local function band_of(record)
  local priority = string.byte(record, 2) or 5
  if priority > 10 then priority = 5 end
  return string.sub(BANDS, priority + 1, priority + 1)
end

-- Eight bytes for a key; nine for what runs one at a time whatever the queue's limit (core/route.py).
local function lane_of(record)
  local length = string.byte(record, 11)
  if length ~= 8 and length ~= 9 then return nil end
  return string.sub(record, 12, 11 + length)
end

-- Another program may have written into the stream: such bytes have no header to go by.
local function is_record(record)
  if #record < 12 then return false end
  local version, priority, lane = string.byte(record, 1), string.byte(record, 2), string.byte(record, 11)
  return version < 32 and priority >= 1 and priority <= 10 and (lane == 0 or lane == 8 or lane == 9)
end

-- The first bit of what the third byte says; the others are in lib/report.lua.
local function holds_lane(record)
  return is_record(record) and string.byte(record, 3) % 2 == 1
end

local function holding(record, yes)
  local flags = string.byte(record, 3)
  return string.sub(record, 1, 2) .. string.char(flags - flags % 2 + (yes and 1 or 0)) .. string.sub(record, 4)
end

local function crashes_of(record)
  return string.byte(record, 4)
end

local function with_crashes(record, n)
  return string.sub(record, 1, 3) .. string.char(math.min(n, 255)) .. string.sub(record, 5)
end

-- As the record of a job that is in no lane.
local function laneless(record)
  if not is_record(record) then return record end
  return holding(string.sub(record, 1, 10) .. '\0' .. string.sub(record, 12 + string.byte(record, 11)), false)
end
