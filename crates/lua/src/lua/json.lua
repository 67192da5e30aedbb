-- JSON as lua-cjson reads and writes it. Rust reads the text to tokens and writes the strings; this file has the tables.
local SB = ...
local functions, cx = SB.functions, SB.cx
local token = SB.constants.token
local ffi_string = require("ffi").string
local c_read, c_token = functions.json_read, functions.json_token
local c_begin, c_raw, c_string, c_number, c_end =
  functions.json_begin, functions.json_raw, functions.json_string, functions.json_number, functions.json_end
local NULL, TRUE, FALSE, NUMBER, STRING = token.null, token["true"], token["false"], token.number, token.string
local OBJECT, OBJECT_END, ARRAY, ARRAY_END, NAME =
  token.object_start, token.object_end, token.array_start, token.array_end, token.name
local type, error, setmetatable, getmetatable, next, floor = type, error, setmetatable, getmetatable, next, math.floor
local tostring, tonumber = tostring, tonumber

local null = SB.null
local json = {null = null}
-- Tables with these metatables are arrays even if they are empty.
json.array_mt = {__name = "array_mt"}
json.empty_array_mt = {__name = "empty_array_mt"}
json.empty_array = setmetatable({}, json.array_mt)

-- Builds the value of the token at `at`. Returns it and the place of the token after it.
local function build(at, arrays)
  local kind = c_token(cx, at)
  if kind == STRING then return ffi_string(cx.ptr, cx.len), at + 1 end
  if kind == NUMBER then return cx.number, at + 1 end
  if kind == TRUE then return true, at + 1 end
  if kind == FALSE then return false, at + 1 end
  if kind == NULL then return null, at + 1 end
  local t = {}
  at = at + 1
  if kind == ARRAY then
    local n = 0
    while c_token(cx, at) ~= ARRAY_END do
      n = n + 1
      t[n], at = build(at, arrays)
    end
    if arrays then setmetatable(t, json.array_mt) end
    return t, at + 1
  end
  while c_token(cx, at) == NAME do
    local name = ffi_string(cx.ptr, cx.len)
    t[name], at = build(at + 1, arrays)
  end
  return t, at + 1
end

-- Returns the value, or nil and an error. With `arrays`, arrays get the metatable of arrays.
function json.read(text, arrays)
  local code = c_read(cx, text, #text)
  if code ~= 1 then return nil, ffi_string(cx.ptr, cx.len) end
  return (build(0, arrays))
end

local MAX_DEPTH = 1000

-- Returns the length if the table is an array.
local function array_length(t, name)
  local count, max = 0, 0
  for k in next, t do
    if type(k) ~= "number" or k < 1 or floor(k) ~= k then return nil end
    count = count + 1
    if k > max then max = k end
  end
  if max > 10 and max > count * 2 then
    error({"Cannot serialise table: excessively sparse array"})
  end
  return max
end

local function write(v, depth, arrays)
  local t = type(v)
  if t == "string" then
    c_string(cx, v, #v)
  elseif t == "number" then
    if c_number(cx, v) ~= 1 then error({"Cannot serialise number: must not be NaN or Infinity"}) end
  elseif t == "boolean" then
    local word = tostring(v)
    c_raw(cx, word, #word)
  elseif v == nil or v == null then
    c_raw(cx, "null", 4)
  elseif t == "table" then
    if depth > MAX_DEPTH then
      error({"Cannot serialise, excessive depth (" .. depth .. ")"})
    end
    local mt = getmetatable(v)
    local is_empty = next(v) == nil
    local length
    if mt == json.array_mt then
      length = #v
    elseif is_empty then
      length = mt == json.empty_array_mt and 0 or nil
    else
      length = array_length(v)
    end
    if length then
      c_raw(cx, "[", 1)
      for i = 1, length do
        if i > 1 then c_raw(cx, ",", 1) end
        write(v[i], depth + 1)
      end
      c_raw(cx, "]", 1)
      return
    end
    c_raw(cx, "{", 1)
    local is_first = true
    for k, item in next, v do
      if not is_first then c_raw(cx, ",", 1) end
      is_first = false
      local kt = type(k)
      if kt == "string" then
        c_string(cx, k, #k)
      elseif kt == "number" then
        c_raw(cx, '"', 1)
        if c_number(cx, k) ~= 1 then error({"Cannot serialise number: must not be NaN or Infinity"}) end
        c_raw(cx, '"', 1)
      else
        error({"Cannot serialise " .. kt .. ": table key must be a number or string"})
      end
      c_raw(cx, ":", 1)
      write(item, depth + 1)
    end
    c_raw(cx, "}", 1)
  else
    error({"Cannot serialise " .. (t == "cdata" and "userdata" or t) .. ": type not supported"})
  end
end

-- Returns the text, or nil and an error.
function json.write(v)
  c_begin(cx)
  local ok, err = pcall(write, v, 1)
  if not ok then return nil, type(err) == "table" and err[1] or err end
  c_end(cx)
  return ffi_string(cx.ptr, cx.len)
end

SB.json = json

-- The modules `cjson` and `cjson.safe`.
local function module()
  local m = {
    null = null, _NAME = "cjson", _VERSION = "2.1.0.10rc1",
    array_mt = json.array_mt, empty_array_mt = json.empty_array_mt, empty_array = json.empty_array,
  }
  local arrays = false
  m.decode_array_with_array_mt = function(on)
    if on ~= nil then arrays = on end
    return arrays
  end
  return m, function() return arrays end
end

local function text_of(v, name)
  local t = type(v)
  if t == "string" then return v end
  if t == "number" then return tostring(v) end
  error("bad argument #1 to '" .. name .. "' (string expected, got " .. (v == nil and "no value" or t) .. ")", 3)
end

local function cjson()
  local m, arrays = module()
  m.encode = function(v, ...)
    local text, err = json.write(v)
    if not text then error(err, 2) end
    return text
  end
  m.decode = function(text, ...)
    text = text_of(text, "decode")
    local v, err = json.read(text, arrays())
    if err then error(err, 2) end
    return v
  end
  m.new = cjson
  return m
end

local function cjson_safe()
  local m, arrays = module()
  m.encode = function(v, ...) return json.write(v) end
  m.decode = function(text, ...)
    if type(text) ~= "string" and type(text) ~= "number" then
      return nil, "bad argument #1 to '?' (string expected, got " .. type(text) .. ")"
    end
    return json.read(tostring(text), arrays())
  end
  m.new = cjson_safe
  return m
end

package.preload["cjson"] = cjson
package.preload["cjson.safe"] = cjson_safe
