-- What OpenResty's LuaJIT has and upstream's has not.
local pairs, type, floor = pairs, type, math.floor
local function check(t, name)
  if type(t) ~= "table" then
    error("bad argument #1 to '" .. name .. "' (table expected, got " .. (t == nil and "no value" or type(t)) .. ")", 3)
  end
end
local P = package.preload
local extras = {
  isempty = function(t) check(t, "isempty") return next(t) == nil end,
  nkeys = function(t)
    check(t, "nkeys")
    local n = 0
    for _ in next, t do n = n + 1 end
    return n
  end,
  isarray = function(t)
    check(t, "isarray")
    for k in next, t do
      if type(k) ~= "number" or k < 1 or floor(k) ~= k then return false end
    end
    return true
  end,
  clone = function(t)
    check(t, "clone")
    local c = {}
    for k, v in next, t do c[k] = v end
    return c
  end,
}
table.new, table.clear = require "table.new", require "table.clear"
for name, f in pairs(extras) do
  table[name] = f
  P["table." .. name] = function() return f end
end
-- thread.exdata(value) sets, thread.exdata() gets a pointer of the running coroutine.
local exdata = setmetatable({}, {__mode = "k"})
local running = coroutine.running
P["thread.exdata"] = function()
  return function(...)
    if select("#", ...) == 0 then return exdata[running()] end
    exdata[running()] = (...)
  end
end
