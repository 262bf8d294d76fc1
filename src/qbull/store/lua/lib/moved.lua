-- moved: the server with a clock that tests have moved forward. Only the test clock loads this file.
local redis = (function(server)
  local shift = tonumber(server.call('GET', 'qbull:moved') or '0')
  if shift == 0 then return server end
  local function call(command, ...)
    if command == 'TIME' then
      local t = server.call('TIME')
      return {tostring(tonumber(t[1]) + math.floor(shift / 1000)), t[2]}
    end
    local words = {...}
    if command == 'XADD' then
      for i = 2, #words do
        if words[i] == '*' then
          local t = server.call('TIME')
          words[i] = string.format('%.0f-*', t[1] * 1000 + math.floor(t[2] / 1000) + shift)
          break
        end
      end
    elseif command == 'PEXPIREAT' then
      words[2] = string.format('%.0f', tonumber(words[2]) - shift)
    end
    return server.call(command, unpack(words))
  end
  return setmetatable({call = call}, {__index = server})
end)(redis)
