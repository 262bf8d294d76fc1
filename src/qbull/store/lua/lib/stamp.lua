-- stamp: the time at which a job was enqueued. For a job that went straight to ready it is in the id of its
-- entry. When the job leaves that entry, the time is written to its record.
-- USES  clock record_layout
local NOT_CREATED = string.rep('\0', CREATED_BYTES)

-- The record without its time of creation.
local function unstamped(record)
  local after = string.sub(record, CREATED_AT + CREATED_BYTES)
  return string.sub(record, 1, CREATED_AT - 1) .. NOT_CREATED .. after
end

local stamped
do -- a script may have 200 local names
  local function bytes_of(ms)
    local bytes = {}
    for i = CREATED_BYTES, 1, -1 do
      bytes[i] = ms % 256
      ms = math.floor(ms / 256)
    end
    return string.char(unpack(bytes))
  end

  local now_bytes -- the same for all jobs of a script
  function stamped(record, entry)
    if #record <= HEADER_BYTES then return record end
    local a, b, c, d, e, f = string.byte(record, CREATED_AT, CREATED_AT + CREATED_BYTES - 1)
    if a + b + c + d + e + f > 0 then return record end
    local bytes = entry and bytes_of(tonumber(string.match(entry, '^%d+'))) or now_bytes
    if not bytes then
      bytes = bytes_of(now_ms)
      now_bytes = bytes
    end
    return string.sub(record, 1, CREATED_AT - 1) .. bytes .. string.sub(record, CREATED_AT + CREATED_BYTES)
  end
end
