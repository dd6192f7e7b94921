-- Shared by scripts: the ids of stream entries, and the replies of XINFO.
--
-- The parts of an id are compared as digits: they may have 64 bits, and a number in Lua is exact to 53.
local function is_smaller(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function fields(flat)
  local named = {}
  for i = 1, #flat, 2 do
    named[flat[i]] = flat[i + 1]
  end
  return named
end
