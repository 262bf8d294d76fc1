-- sha256: the SHA-256 of a text, in hexadecimal digits. The server itself has only SHA-1.
local sha256
do
  local band, bnot, bxor, ror, rshift = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift
  local constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
  }

  -- The text with its length behind it, as a multiple of 64 bytes.
  local function padded(text)
    local bits, length = #text * 8, ''
    for _ = 1, 8 do
      length = string.char(bits % 256) .. length
      bits = math.floor(bits / 256)
    end
    return text .. '\128' .. string.rep('\0', (55 - #text) % 64) .. length
  end

  local function expanded(block)
    local w = {}
    for i = 1, 16 do
      local a, b, c, d = string.byte(block, i * 4 - 3, i * 4)
      w[i] = a * 16777216 + b * 65536 + c * 256 + d
    end
    for i = 17, 64 do
      local early, late = w[i - 15], w[i - 2]
      local s0 = bxor(ror(early, 7), ror(early, 18), rshift(early, 3))
      local s1 = bxor(ror(late, 17), ror(late, 19), rshift(late, 10))
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) % 4294967296
    end
    return w
  end

  local function compressed(state, w)
    local a, b, c, d, e, f, g, h = unpack(state)
    for i = 1, 64 do
      local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
      local choice = bxor(band(e, f), band(bnot(e), g))
      local t1 = h + s1 + choice + constants[i] + w[i]
      local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
      local majority = bxor(band(a, b), band(a, c), band(b, c))
      h, g, f, e = g, f, e, (d + t1) % 4294967296
      d, c, b, a = c, b, a, (t1 + s0 + majority) % 4294967296
    end
    local after = {a, b, c, d, e, f, g, h}
    for i = 1, 8 do after[i] = (after[i] + state[i]) % 4294967296 end
    return after
  end

  function sha256(text)
    local state = {
      0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    }
    local whole = padded(text)
    for at = 1, #whole, 64 do state = compressed(state, expanded(string.sub(whole, at, at + 63))) end
    local digits = {}
    for i = 1, 8 do digits[i] = string.format('%08x', state[i]) end
    return table.concat(digits)
  end
end
