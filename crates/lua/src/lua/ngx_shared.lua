-- `ngx.shared`: the shared dictionaries. Source: lua-resty-core, lib/resty/core/shdict.lua.
local SB = ...
local functions, cx, constants, own = SB.functions, SB.cx, SB.constants, SB.ngx
local ffi = require "ffi"
local ffi_string, double_ptr = ffi.string, ffi.new("double[1]")
local type, error, tostring, tonumber, rawget = type, error, tostring, tonumber, rawget
local c_dict, failed = functions.dict, SB.failed
local OP, KIND, OUTCOME = constants.dict, constants.dict_kind, constants.dict_outcome
local DONE, NIL, TEXT, NUMBER, FALSE, TRUE, LIST =
  OUTCOME.done, KIND["nil"], KIND.string, KIND.number, KIND["false"], KIND["true"], KIND.list
local texts = {
  [OUTCOME.not_found] = "not found", [OUTCOME.exists] = "exists", [OUTCOME.no_memory] = "no memory",
  [OUTCOME.not_a_number] = "not a number", [OUTCOME.not_a_list] = "value not a list",
}

-- Returns the number of a dictionary.
local function zone_of(dict)
  local zone = type(dict) == "table" and rawget(dict, 1)
  if type(zone) ~= "number" then error('bad "zone" argument', 3) end
  return zone
end

-- Returns a key as text, or nil and an error.
local function key_of(key)
  if key == nil then return nil, "nil key" end
  if type(key) ~= "string" then key = tostring(key) end
  if key == "" then return nil, "empty key" end
  if #key > 65535 then return nil, "key too long" end
  return key
end

-- Returns the kind of a value and its text, or nil. A number is passed in `cx.number`.
local function kind_of(value)
  local kind = type(value)
  if kind == "string" then return TEXT, value end
  if kind == "number" then
    cx.number = value
    return NUMBER, ""
  end
  if kind == "boolean" then return value and TRUE or FALSE, "" end
  return nil
end

local function call(zone, operation, key, kind, text)
  return c_dict(cx, zone + operation * 65536, kind, key, #key, text, #text)
end

-- Returns the value of the kind that was found.
local function value_of(kind)
  if kind == TEXT then return ffi_string(cx.ptr, cx.len) end
  if kind == NUMBER then return cx.number end
  if kind == TRUE then return true end
  if kind == FALSE then return false end
  return nil
end

local methods = {}
local mt = {__index = methods}

methods.get = function(self, key, ...)
  local zone = zone_of(self)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  local kind = call(zone, OP.get, key, 0, "")
  if kind < 0 then failed(kind) end
  if kind == NIL then return nil end
  if kind == LIST then return nil, "value is a list" end
  local flags = cx.flags
  local value = value_of(kind)
  if flags ~= 0 then return value, flags end
  return value
end

methods.get_stale = function(self, key, ...)
  local zone = zone_of(self)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  local kind = call(zone, OP.get_stale, key, 0, "")
  if kind < 0 then failed(kind) end
  if kind == NIL then return nil end
  if kind == LIST then return nil, "value is a list" end
  local flags, is_stale = cx.flags, cx.number2 ~= 0
  local value = value_of(kind)
  if flags ~= 0 then return value, flags, is_stale end
  return value, nil, is_stale
end

-- Writes a value. A nil removes the value that is there.
local function write(zone, operation, key, value, exptime, flags)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  if exptime == nil then
    exptime = 0
  else
    exptime = tonumber(exptime)
    if not exptime or exptime < 0 then error('bad "exptime" argument', 3) end
  end
  if flags ~= nil and type(flags) ~= "number" then error('bad "user_flags" argument', 3) end
  if value == nil and operation ~= OP.add and operation ~= OP.safe_add and operation ~= OP.replace then
    call(zone, OP.delete, key, 0, "")
    return true, nil, false
  end
  local kind, text = kind_of(value)
  if not kind then return nil, "bad value type" end
  cx.number2, cx.flags = exptime, flags or 0
  local code = call(zone, operation, key, kind, text)
  if code < 0 then failed(code) end
  local forcible = cx.flags ~= 0
  if code == DONE then return true, nil, forcible end
  return false, texts[code], forcible
end

for name, operation in pairs{
  set = OP.set, safe_set = OP.safe_set, add = OP.add, safe_add = OP.safe_add, replace = OP.replace,
} do
  methods[name] = function(self, key, value, exptime, flags, ...)
    local ok, err, forcible = write(zone_of(self), operation, key, value, exptime, flags)
    return ok, err, forcible
  end
end

methods.delete = function(self, key, ...)
  local ok, err, forcible = write(zone_of(self), OP.set, key, nil)
  return ok, err, forcible
end

methods.incr = function(self, key, value, init, init_ttl, ...)
  local zone = zone_of(self)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  if type(value) ~= "number" then
    value = tonumber(value)
    if not value then error("cannot convert 'nil' to 'double'") end
  end
  if init ~= nil then
    init = tonumber(init)
    if not init then error('bad init arg: number expected, got "' .. type(init) .. '"', 2) end
  end
  if init_ttl ~= nil then
    init_ttl = tonumber(init_ttl)
    if not init_ttl or init_ttl < 0 then error('bad "init_ttl" argument', 2) end
    if not init then error('must provide "init" when providing "init_ttl"', 2) end
  end
  cx.number, cx.number2 = value, init_ttl or 0
  local start = ""
  if init then
    double_ptr[0] = init
    start = ffi_string(double_ptr, 8)
  end
  local code = call(zone, OP.increment, key, NUMBER, start)
  if code < 0 then failed(code) end
  if code ~= DONE then return nil, texts[code] end
  if init then return cx.number, nil, cx.flags ~= 0 end
  return cx.number
end

for name, operation in pairs{lpush = OP.push_left, rpush = OP.push_right} do
  methods[name] = function(self, key, value, ...)
    local zone = zone_of(self)
    local err
    key, err = key_of(key)
    if not key then return nil, err end
    local kind, text = kind_of(value)
    if not kind or kind == TRUE or kind == FALSE then return nil, "bad value type" end
    local code = call(zone, operation, key, kind, text)
    if code < 0 then failed(code) end
    if code ~= DONE then return nil, texts[code] end
    return cx.number
  end
end

for name, operation in pairs{lpop = OP.pop_left, rpop = OP.pop_right} do
  methods[name] = function(self, key, ...)
    local zone = zone_of(self)
    local err
    key, err = key_of(key)
    if not key then return nil, err end
    local kind = call(zone, operation, key, 0, "")
    -- The outcome of an error is below -16.
    if kind <= -16 then return nil, texts[-kind - 16] end
    if kind < 0 then failed(kind) end
    local value = value_of(kind)
    return value
  end
end

methods.llen = function(self, key, ...)
  local zone = zone_of(self)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  local code = call(zone, OP.length, key, 0, "")
  if code < 0 then failed(code) end
  if code ~= DONE then return nil, texts[code] end
  return cx.number
end

methods.ttl = function(self, key, ...)
  local zone = zone_of(self)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  local code = call(zone, OP.ttl, key, 0, "")
  if code < 0 then failed(code) end
  if code ~= DONE then return nil, texts[code] end
  return cx.number
end

methods.expire = function(self, key, exptime, ...)
  local zone = zone_of(self)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  exptime = tonumber(exptime)
  if not exptime or exptime < 0 then error('bad "exptime" argument', 2) end
  cx.number2 = exptime
  local code = call(zone, OP.expire, key, 0, "")
  if code < 0 then failed(code) end
  if code ~= DONE then return nil, texts[code] end
  return true
end

for name, operation in pairs{capacity = OP.capacity, free_space = OP.free_space} do
  methods[name] = function(self, ...)
    local code = call(zone_of(self), operation, "", 0, "")
    if code < 0 then failed(code) end
    return cx.number
  end
end

methods.flush_all = function(self, ...)
  call(zone_of(self), OP.flush_all, "", 0, "")
end

methods.flush_expired = function(self, most, ...)
  local zone = zone_of(self)
  most = tonumber(most) or 0
  cx.flags = most < 0 and 0 or most
  call(zone, OP.flush_expired, "", 0, "")
  return cx.number
end

methods.get_keys = function(self, most, ...)
  local zone = zone_of(self)
  most = tonumber(most) or 1024
  cx.flags = most < 0 and 1024 or most
  local count = call(zone, OP.keys, "", 0, "")
  if count < 0 then failed(count) end
  local keys = {}
  for i = 0, count - 1 do keys[i + 1] = (SB.item(i)) end
  return keys
end

own.shared = {}
for name, number in pairs(constants.zone) do own.shared[name] = setmetatable({number}, mt) end
SB.dict_methods = methods
