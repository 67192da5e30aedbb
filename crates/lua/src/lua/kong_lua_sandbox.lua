-- The globals of the sandbox: functions that reach neither files nor other code. Source: kong/tools/kong-lua-sandbox.lua.
local SB = ...
local setmetatable, error, pairs, tostring = setmetatable, error, pairs, tostring

local functions = {
  "_VERSION", "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack",
  "xpcall",
}
local libraries = {
  coroutine = {"create", "resume", "running", "status", "wrap", "yield"},
  math = {
    "abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "fmod", "floor", "frexp", "huge",
    "ldexp", "log", "log10", "max", "min", "modf", "pi", "pow", "rad", "random", "sin", "sinh", "sqrt", "tan", "tanh",
  },
  os = {"clock", "date", "difftime", "time"},
  string = {
    "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse", "sub", "upper",
  },
  table = {"concat", "insert", "maxn", "remove", "sort"},
}

-- A library that cannot be changed: all snippets of the VM share it.
local function protected(name, library)
  return setmetatable({}, {
    __index = library,
    __newindex = function(_, key)
      error("Can not modify " .. name .. "." .. tostring(key) .. ". Protected by the sandbox.")
    end,
  })
end

local base = {}
for _, name in pairs(functions) do base[name] = _G[name] end
for name, keys in pairs(libraries) do
  local library = {}
  for _, key in pairs(keys) do library[key] = _G[name][key] end
  base[name] = protected(name, library)
end

-- Returns the globals of a new snippet. What `given` has comes first; the snippet sees the rest of it, too.
function SB.sandbox(given)
  local env = {}
  for name, value in pairs(base) do
    local other = given[name]
    if other == nil then other = value end
    env[name] = other
  end
  env._G = env
  return setmetatable(env, {__index = given})
end
