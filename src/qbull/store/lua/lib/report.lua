-- report: what the keeper is to tell PostgreSQL, of jobs whose record asks for it: of their end, or of all they go through.
-- `reports` has entries of up to 50 of them: <letter><id> and, where all is asked for, the record as it is then. Uses record.
--   w  waiting      d  delayed      c  completed      f  failed      x  cancelled      -  removed      a  active (by the worker)
-- While nobody reads them they are kept, but not without bound.
local REPORTS = 1000000
local LARGE = 2000
local told, told_n = {}, 0

-- Where the msgpack value that begins at a position ends, of the kinds that bodies and endings begin with.
local function behind_value(s, at)
  local kind = string.byte(s, at)
  local after = at + 1
  local function length(bytes)
    local n = 0
    for i = 0, bytes - 1 do n = n * 256 + string.byte(s, after + i) end
    return after + bytes + n
  end
  if kind >= 0xa0 and kind <= 0xbf then return after + kind - 0xa0 end -- a short text
  if kind == 0xd9 or kind == 0xc4 then return length(1) end -- texts and bytes
  if kind == 0xda or kind == 0xc5 then return length(2) end
  if kind == 0xdb or kind == 0xc6 then return length(4) end
  if kind == 0xcc or kind == 0xd0 then return after + 1 end -- numbers
  if kind == 0xcd or kind == 0xd1 then return after + 2 end
  if kind == 0xca or kind == 0xce or kind == 0xd2 then return after + 4 end
  if kind == 0xcb or kind == 0xcf or kind == 0xd3 then return after + 8 end
  return after
end

-- The array that begins at a position with the n-th of its values made empty, where that is bytes.
local function without_value(s, at, n)
  local from = at + 1
  for _ = 2, n do from = behind_value(s, from) end
  local kind = string.byte(s, from)
  if kind < 0xc4 or kind > 0xc6 then return s end
  return string.sub(s, 1, from - 1) .. '\196\0' .. string.sub(s, behind_value(s, from))
end

-- A large record goes without its payload, a large ending without its result: nobody asks for them here.
local function in_short(letter, record)
  local body = 12 + string.byte(record, 11)
  if #record <= LARGE then return record end
  if not string.find('cfx', letter, 1, true) then return without_value(record, body, 2) end
  local size = 0
  for i = #record - 3, #record do size = size * 256 + string.byte(record, i) end
  local head, ending = string.sub(record, 1, #record - 4 - size), string.sub(record, #record - 3 - size, #record - 4)
  if size > LARGE / 2 then ending = without_value(ending, 1, 4) end
  local sealed = {}
  for i = 3, 0, -1 do sealed[#sealed + 1] = string.char(math.floor(#ending / 256 ^ i) % 256) end
  return without_value(head, body, 2) .. ending .. table.concat(sealed)
end

-- `asked` is how much a record must ask for (core/job.py): REPORT_END, where nothing is said.
local function report(letter, id, record, asked)
  local flags = string.byte(record, 3)
  if not flags or flags < (asked or 2) or not is_record(record) then return end
  told[told_n + 1], told[told_n + 2] = letter .. id, flags >= 4 and in_short(letter, record) or ''
  told_n = told_n + 2
end

local function write_reports()
  for from = 1, told_n, 100 do
    redis.call('XADD', base .. 'reports', 'MAXLEN', '~', REPORTS, '*', unpack(told, from, math.min(from + 99, told_n)))
  end
  told, told_n = {}, 0
end
