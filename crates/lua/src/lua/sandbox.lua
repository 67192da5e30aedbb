-- Compiles the user's texts, with the globals that the sandbox allows. Source: kong/tools/{sandbox,kong-lua-sandbox}.lua.
local SB = ...
local cx = SB.cx
local ffi_string = require("ffi").string
local loadstring, setfenv, setmetatable, error, pairs, rawset = loadstring, setfenv, setmetatable, error, pairs, rawset
local _G = _G

-- The libraries of the sandbox.
local allowed = {
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
local functions = {
  "_VERSION", "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack",
  "xpcall",
}

-- Makes a table that cannot be changed.
local function protected(name, t)
  return setmetatable({}, {
    __index = t,
    __newindex = function(_, key)
      error("Can not modify " .. name .. "." .. tostring(key) .. ". Protected by the sandbox.", 2)
    end,
  })
end

local base = {}
for _, name in pairs(functions) do base[name] = _G[name] end
for name, keys in pairs(allowed) do
  local t = {}
  for _, key in pairs(keys) do t[key] = _G[name][key] end
  base[name] = protected(name, t)
end

base.require = function(name)
  error("require '" .. tostring(name) .. "' not allowed within sandbox", 2)
end

local sandbox_kong = setmetatable({}, {__index = kong})
local function environment()
  local env = {}
  for k, v in pairs(base) do env[k] = v end
  env.kong, env.ngx = sandbox_kong, ngx
  env._G = env
  return env
end

-- Compiles the text at `cx.ptr`. A chunk has `...`, so LuaJIT never compiles it to machine code; a function within it is.
-- So the function that runs is one around the text. If the text uses `...` itself, that does not parse, and the chunk runs.
function SB.compile()
  local text, is_sandboxed = ffi_string(cx.ptr, cx.len), cx.number == 1
  local chunk, err = loadstring(text, text)
  if not chunk then error(err, 0) end
  local around = loadstring("return function() " .. text .. "\nend", text)
  local env = is_sandboxed and environment() or _G
  if not around then return setfenv(chunk, env) end
  return setfenv(around(), env)
end
