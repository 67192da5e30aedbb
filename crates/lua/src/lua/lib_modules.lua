-- Loads the libraries of others that the program has (penlight, lpeg, mlcache, inspect), and small modules of Kong.
local SB = ...
local functions, cx = SB.functions, SB.cx
local ffi_string = require("ffi").string
local loadstring, setfenv, setmetatable, error, pcall, unpack, tostring, require =
  loadstring, setfenv, setmetatable, error, pcall, unpack, tostring, require
local insert, remove, new, clear, gsub = table.insert, table.remove, table.new, table.clear, string.gsub
local _G, ngx, debug = _G, ngx, debug
local P = package.preload

-- What a library sees in place of the globals, by its name.
local globals = {}

-- mlcache reads several keys at once in threads. Here it reads one after the other.
globals["kong.resty.mlcache"] = setmetatable({
  ngx = setmetatable({
    thread = {
      spawn = function(f, ...) return {pcall(f, ...)} end,
      wait = function(results) return unpack(results) end,
    },
  }, {__index = ngx}),
  require = function(name)
    return require((gsub(name, "^resty%.mlcache", "kong.resty.mlcache")))
  end,
}, {__index = _G})

-- pl.pretty takes the methods of strings away while it reads, and sets a hook, against loops in what it reads. The watchdog
-- and the limit of memory stop those here. A stop in the middle would leave the VM without the methods.
local function no_hook() end
globals["pl.pretty"] = setmetatable({
  require = function(name)
    if name == "debug" then return setmetatable({gethook = no_hook, sethook = no_hook, setmetatable = no_hook}, {__index = debug}) end
    return require(name)
  end,
}, {__index = _G})

insert(package.loaders, 2, function(name)
  if functions.module(cx, name, #name) ~= 1 then return "\n\tno module '" .. name .. "' in the program" end
  local file = "=./" .. gsub(name, "%.", "/") .. ".lua"
  local chunk, err = loadstring(ffi_string(cx.ptr, cx.len), file)
  if not chunk then return err end
  if globals[name] then setfenv(chunk, globals[name]) end
  return chunk
end)

P["lpeg"], SB_LPEG = SB_LPEG, nil

-- Tables that are used again. Source: lua-tablepool, lib/tablepool.lua.
P["tablepool"] = function()
  local MAX = 200
  local pools = {}
  return {
    fetch = function(tag, narr, nrec)
      local pool = pools[tag]
      local last = pool and #pool or 0
      if last > 0 then return remove(pool, last) end
      return new(narr or 0, nrec or 0)
    end,
    release = function(tag, t, keeps)
      if not t then error("object empty", 2) end
      local pool = pools[tag]
      if not pool then
        pool = {}
        pools[tag] = pool
      end
      if not keeps then clear(setmetatable(t, nil)) end
      if #pool < MAX then pool[#pool + 1] = t end
    end,
  }
end

P["kong.meta"] = function()
  local version = setmetatable({major = 3, minor = 9, patch = 1}, {
    __tostring = function(t) return t.major .. "." .. t.minor .. "." .. t.patch end,
  })
  return {
    _NAME = "kong", _VERSION = tostring(version), _VERSION_TABLE = version, version = tostring(version),
    _SERVER_TOKENS = "kong/" .. tostring(version), _DEPENDENCIES = {nginx = {"1.25.3.2"}},
  }
end
