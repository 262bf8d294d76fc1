-- record: the header of a job's record, laid out in core/record.py.
-- USES  record_layout
local BANDS = '0123456789a'

local function level_of(record)
  local priority = string.byte(record, PRIORITY_AT) or 5
  if priority > 10 then priority = 5 end
  return string.sub(BANDS, priority + 1, priority + 1)
end

-- The lane of a record: the digest of a key, or a longer one if its jobs run one at a time whatever the
-- limit.
local function lane_of(record)
  local length = string.byte(record, LANE_LENGTH_AT)
  if length ~= KEY_LANE_BYTES and length ~= SINGLE_LANE_BYTES then return nil end
  return string.sub(record, HEADER_BYTES + 1, HEADER_BYTES + length)
end

-- Whether these bytes are a record. Another program may have written something else into the stream.
local function is_record(record)
  if #record <= HEADER_BYTES then return false end
  local version, priority = string.byte(record, 1, PRIORITY_AT)
  local lane = string.byte(record, LANE_LENGTH_AT)
  return version <= MAX_LAYOUT_VERSION and priority >= 1 and priority <= 10
    and (lane == 0 or lane == KEY_LANE_BYTES or lane == SINGLE_LANE_BYTES)
end

-- The position of the body.
local function body_at(record) return HEADER_BYTES + 1 + string.byte(record, LANE_LENGTH_AT) end

local function has_flag(record, flag)
  return (string.byte(record, FLAGS_AT) or 0) % (2 * flag) >= flag
end

local function holds_lane(record)
  return is_record(record) and has_flag(record, HOLDS_LANE_FLAG)
end

local function with_flag(record, flag, yes)
  if has_flag(record, flag) == (yes and true or false) then return record end
  local flags = string.byte(record, FLAGS_AT) + (yes and flag or -flag)
  return string.sub(record, 1, FLAGS_AT - 1) .. string.char(flags) .. string.sub(record, FLAGS_AT + 1)
end

local function holding(record, yes) return with_flag(record, HOLDS_LANE_FLAG, yes) end

local function crashes_of(record)
  return string.byte(record, CRASHES_AT)
end

local function with_crashes(record, n)
  local before, after = string.sub(record, 1, CRASHES_AT - 1), string.sub(record, CRASHES_AT + 1)
  return before .. string.char(math.min(n, 255)) .. after
end

-- The same record without a lane.
local function laneless(record)
  if not is_record(record) then return record end
  local body = string.sub(record, body_at(record))
  return holding(string.sub(record, 1, LANE_LENGTH_AT - 1) .. '\0' .. body, false)
end
