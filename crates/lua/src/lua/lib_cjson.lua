-- The modules `cjson` and `cjson.safe`: lua-cjson 2.1.0.11 with OpenResty's additions, as Kong sets it up.
local SB = ...
local json = SB.json
local type, error, tostring, tonumber, select, getinfo = type, error, tostring, tonumber, select, debug.getinfo

-- Raises an error about an argument of the function that calls this, in the words of Lua.
local function refuse(at, why)
  local called = getinfo(2, "n")
  local name = called and called.name or "?"
  error("bad argument #" .. at .. " to '" .. name .. "' (" .. why .. ")", 3)
end

local function text_of(v)
  local kind = type(v)
  if kind == "string" then return v end
  if kind == "number" then return tostring(v) end
  return nil, "string expected, got " .. kind
end

-- Adds the functions that read and change the settings of an instance. Each returns the setting.
local function add_settings(m, settings)
  local function integer(field, min, max)
    return function(v, ...)
      if select("#", ...) > 0 then refuse(2, "found too many arguments") end
      if v ~= nil then
        local number = tonumber(v)
        if not number then refuse(1, "number expected, got " .. type(v)) end
        if number < min or number > max then refuse(1, "expected integer between " .. min .. " and " .. max) end
        settings[field] = number - number % 1
      end
      return settings[field]
    end
  end
  local function flag(field)
    return function(v, ...)
      if select("#", ...) > 0 then refuse(2, "found too many arguments") end
      if v ~= nil then
        if v == "on" then v = true elseif v == "off" then v = false end
        if type(v) ~= "boolean" then refuse(1, "invalid option '" .. tostring(v) .. "'") end
        settings[field] = v
      end
      return settings[field]
    end
  end
  m.encode_max_depth = integer("encode_depth", 1, 2147483647)
  m.decode_max_depth = integer("decode_depth", 1, 1073741823)
  m.encode_number_precision = integer("precision", 1, 16)
  m.encode_keep_buffer = flag("keep_buffer")
  m.decode_invalid_numbers = flag("decode_invalid")
  m.encode_empty_table_as_object = flag("empty_as_object")
  m.decode_array_with_array_mt = flag("arrays")
  m.encode_escape_forward_slash = flag("escape_slash")
  m.encode_skip_unsupported_value_types = flag("skip_unsupported")
  m.encode_invalid_numbers = function(v, ...)
    if select("#", ...) > 0 then refuse(2, "found too many arguments") end
    if v ~= nil then
      if v == "on" then v = true elseif v == "off" then v = false end
      if type(v) ~= "boolean" and v ~= "null" then refuse(1, "invalid option '" .. tostring(v) .. "'") end
      settings.encode_invalid = v
    end
    return settings.encode_invalid
  end
  m.encode_sparse_array = function(convert, ratio, safe, ...)
    if select("#", ...) > 0 then refuse(4, "found too many arguments") end
    for at, v in next, {[2] = ratio, [3] = safe} do
      if not tonumber(v) then refuse(at, "number expected, got " .. type(v)) end
      if tonumber(v) < 0 then refuse(at, "expected integer between 0 and 2147483647") end
    end
    if convert ~= nil then settings.sparse_convert = convert and true or false end
    if ratio ~= nil then settings.sparse_ratio = tonumber(ratio) end
    if safe ~= nil then settings.sparse_safe = tonumber(safe) end
    return settings.sparse_convert, settings.sparse_ratio, settings.sparse_safe
  end
end

local function instance(is_safe, settings)
  local m = {
    null = json.null, _NAME = "cjson", _VERSION = "2.1.0.11",
    array_mt = json.array_mt, empty_array_mt = json.empty_array_mt, empty_array = json.empty_array,
  }
  add_settings(m, settings)
  m.encode = function(...)
    if select("#", ...) ~= 1 then refuse(1, "expected 1 argument") end
    local text, err = json.encode((...), settings)
    if text then return text end
    if not is_safe then error(err, 2) end
    return nil, err
  end
  m.decode = function(...)
    if select("#", ...) ~= 1 then refuse(1, "expected 1 argument") end
    local text, why = text_of((...))
    if not text then
      if is_safe then return nil, "bad argument #1 to '?' (" .. why .. ")" end
      refuse(1, why)
    end
    local value, err = json.decode(text, settings)
    if err then
      if is_safe then return nil, err end
      error(err, 2)
    end
    return value
  end
  m.new = function(...)
    local own = json.defaults()
    own.escape_slash = true
    return instance(is_safe, own)
  end
  return m
end

package.preload["cjson"] = function() return instance(false, json.defaults()) end
package.preload["cjson.safe"] = function() return instance(true, json.defaults()) end
