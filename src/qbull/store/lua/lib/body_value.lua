-- body_value: read one value of a record's body (core/record.py).
-- USES  msgpack
-- The n-th value of the array at a position; nil if the array is shorter.
local function value_of(s, at, n)
  local from, many = first_value(s, at)
  if many < n then return nil end
  for _ = 2, n do from = behind_value(s, from) end
  return cmsgpack.unpack(string.sub(s, from, behind_value(s, from) - 1))
end
