-- stamp: when a job was enqueued. A job that went straight to ready has that in its entry's id; wherever it goes next,
-- the time goes into its record.
-- USES  clock
local function stamped(record, entry)
  if #record < 12 or string.sub(record, 5, 10) ~= '\0\0\0\0\0\0' then return record end
  local ms = entry and tonumber(string.match(entry, '^%d+')) or now_ms
  local bytes = {}
  for i = 6, 1, -1 do
    bytes[i] = ms % 256
    ms = math.floor(ms / 256)
  end
  return string.sub(record, 1, 4) .. string.char(unpack(bytes)) .. string.sub(record, 11)
end
