-- msgpack: find values in the array of a record's body or of an ending (core/record.py).

-- The position of the first value of an array, and the number of values. An array of more than 15 values has
-- a longer header.
local function first_value(s, at)
  local kind = string.byte(s, at) or 0x90 -- it may have been cut off
  if kind == 0xdc then return at + 3, (string.byte(s, at + 1) or 0) * 256 + (string.byte(s, at + 2) or 0) end
  if kind == 0xdd then return at + 5, 65536 end -- no record has that many
  return at + 1, kind >= 0x90 and kind <= 0x9f and kind - 0x90 or 0
end

-- The position after the value at a position, for the types that precede the values that scripts read.
-- Arrays and maps have up to 65535 values.
local function behind_value(s, at)
  local kind = string.byte(s, at) or 0xc0 -- it may have been cut off
  local after = at + 1
  local function length(bytes)
    local n = 0
    for i = 0, bytes - 1 do n = n * 256 + (string.byte(s, after + i) or 0) end
    return after + bytes + n
  end
  local function values(from, many)
    for _ = 1, many do from = behind_value(s, from) end
    return from
  end
  if kind >= 0xa0 and kind <= 0xbf then return after + kind - 0xa0 end -- a short text
  if kind == 0xd9 or kind == 0xc4 then return length(1) end -- texts and bytes
  if kind == 0xda or kind == 0xc5 then return length(2) end
  if kind == 0xdb or kind == 0xc6 then return length(4) end
  if kind == 0xcc or kind == 0xd0 then return after + 1 end -- numbers
  if kind == 0xcd or kind == 0xd1 then return after + 2 end
  if kind == 0xca or kind == 0xce or kind == 0xd2 then return after + 4 end
  if kind == 0xcb or kind == 0xcf or kind == 0xd3 then return after + 8 end
  if kind >= 0x90 and kind <= 0x9f or kind == 0xdc then return values(first_value(s, at)) end -- arrays
  if kind >= 0x80 and kind <= 0x8f then return values(after, 2 * (kind - 0x80)) end -- maps
  if kind == 0xde then
    return values(after + 2, 2 * ((string.byte(s, after) or 0) * 256 + (string.byte(s, after + 1) or 0)))
  end
  return after
end

-- The array at a position with its n-th value emptied, if that value is bytes.
local function without_value(s, at, n)
  local from = first_value(s, at)
  for _ = 2, n do from = behind_value(s, from) end
  local kind = string.byte(s, from) or 0
  if kind < 0xc4 or kind > 0xc6 then return s end
  return string.sub(s, 1, from - 1) .. '\196\0' .. string.sub(s, behind_value(s, from))
end
