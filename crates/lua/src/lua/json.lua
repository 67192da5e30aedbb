-- JSON as lua-cjson reads and writes it. Rust reads the text to tokens and writes the strings; this file has the tables.
local SB = ...
local functions, cx = SB.functions, SB.cx
local token = SB.constants.token
local ffi_string = require("ffi").string
local c_read, c_token = functions.json_read, functions.json_token
local c_begin, c_raw, c_string, c_number, c_end, c_cut =
  functions.json_begin, functions.json_raw, functions.json_string, functions.json_number, functions.json_end, functions.json_cut
local NULL, TRUE, FALSE, NUMBER, STRING = token.null, token["true"], token["false"], token.number, token.string
local OBJECT, OBJECT_END, ARRAY, ARRAY_END, NAME =
  token.object_start, token.object_end, token.array_start, token.array_end, token.name
local type, error, pcall, setmetatable, getmetatable, next, floor, rawlen, rawget =
  type, error, pcall, setmetatable, getmetatable, next, math.floor, rawlen, rawget

local null, empty_array = SB.null, SB.empty_array
local json = {null = null, empty_array = empty_array}
-- Tables with these metatables are arrays even if they are empty.
json.array_mt = {}
json.empty_array_mt = {}
local array_mt, empty_array_mt = json.array_mt, json.empty_array_mt

-- The settings of lua-cjson. `escape_slash` is as Kong sets it for the module; a new instance escapes.
function json.defaults()
  return {
    sparse_convert = false, sparse_ratio = 2, sparse_safe = 10,
    encode_depth = 1000, decode_depth = 1000,
    encode_invalid = false, decode_invalid = true,
    precision = 14, empty_as_object = true, arrays = false, escape_slash = false, skip_unsupported = false,
    keep_buffer = true,
  }
end

-- Those of the PDK: more digits, since Kong sets them.
local pdk = json.defaults()
pdk.precision = 16
local pdk_arrays = json.defaults()
pdk_arrays.arrays = true

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
    if arrays then setmetatable(t, array_mt) end
    return t, at + 1
  end
  while c_token(cx, at) == NAME do
    local name = ffi_string(cx.ptr, cx.len)
    t[name], at = build(at + 1, arrays)
  end
  return t, at + 1
end

-- Returns the value, or nil and an error.
function json.decode(text, settings)
  local depth = settings.decode_depth + (settings.decode_invalid and 1073741824 or 0)
  local code = c_read(cx, depth, text, #text)
  if code ~= 1 then return nil, ffi_string(cx.ptr, cx.len) end
  return (build(0, settings.arrays))
end

local function refuse(what, why)
  error({"Cannot serialise " .. what .. ": " .. why}, 0)
end

-- Returns the length if the table is an array.
local function array_length(t, settings)
  local count, max = 0, 0
  for k in next, t do
    if type(k) ~= "number" or k < 1 or floor(k) ~= k then return nil end
    count = count + 1
    if k > max then max = k end
  end
  if settings.sparse_ratio > 0 and max > count * settings.sparse_ratio and max > settings.sparse_safe then
    if not settings.sparse_convert then refuse("table", "excessively sparse array") end
    return nil
  end
  return max
end

local function write_number(v, settings)
  if c_number(cx, v) == 1 then return end
  if not settings.encode_invalid then refuse("number", "must not be NaN or Infinity") end
  local word = "null"
  if settings.encode_invalid ~= "null" then
    word = v ~= v and "NaN" or v > 0 and "Infinity" or "-Infinity"
  end
  c_raw(cx, word, #word)
end

local write

local function write_array(t, length, depth, settings)
  c_raw(cx, "[", 1)
  local is_first = true
  for i = 1, length do
    local start = settings.skip_unsupported and c_cut(cx, -1)
    if not is_first then c_raw(cx, ",", 1) end
    if write(rawget(t, i), depth, settings) then is_first = false else c_cut(cx, start) end
  end
  c_raw(cx, "]", 1)
end

local function write_object(t, depth, settings)
  c_raw(cx, "{", 1)
  local is_first = true
  for k, v in next, t do
    local start = settings.skip_unsupported and c_cut(cx, -1)
    if not is_first then c_raw(cx, ",", 1) end
    local kind = type(k)
    if kind == "string" then
      c_string(cx, k, #k)
    elseif kind == "number" then
      c_raw(cx, '"', 1)
      write_number(k, settings)
      c_raw(cx, '"', 1)
    else
      refuse(kind, "table key must be a number or string")
    end
    c_raw(cx, ":", 1)
    if write(v, depth, settings) then is_first = false else c_cut(cx, start) end
  end
  c_raw(cx, "}", 1)
end

local function write_table(t, depth, settings)
  if depth > settings.encode_depth then
    error({"Cannot serialise, excessive nesting (" .. depth .. ")"}, 0)
  end
  local mt = getmetatable(t)
  local length
  if mt == array_mt then
    length = rawlen(t)
  else
    length = array_length(t, settings)
    if length == 0 and settings.empty_as_object and mt ~= empty_array_mt then length = nil end
  end
  if length then return write_array(t, length, depth, settings) end
  return write_object(t, depth, settings)
end

-- Appends a value. Returns false if its type is unsupported and skipped.
write = function(v, depth, settings)
  local t = type(v)
  if t == "string" then
    c_string(cx, v, #v)
  elseif t == "number" then
    write_number(v, settings)
  elseif v == true then
    c_raw(cx, "true", 4)
  elseif v == false then
    c_raw(cx, "false", 5)
  elseif v == nil or v == null then
    c_raw(cx, "null", 4)
  elseif t == "table" then
    write_table(v, depth + 1, settings)
  elseif v == empty_array then
    c_raw(cx, "[]", 2)
  elseif settings.skip_unsupported then
    return false
  else
    refuse(t, "type not supported")
  end
  return true
end

-- Returns the text, or nil and an error.
function json.encode(v, settings)
  c_begin(cx, settings.precision + (settings.escape_slash and 256 or 0))
  local ok, err = pcall(write, v, 0, settings)
  if not ok then return nil, type(err) == "table" and err[1] or err end
  c_end(cx)
  return ffi_string(cx.ptr, cx.len)
end

-- For the PDK: returns the value, or nil and an error. With `arrays`, arrays get the metatable of arrays.
function json.read(text, arrays)
  return json.decode(text, arrays and pdk_arrays or pdk)
end

function json.write(v)
  return json.encode(v, pdk)
end

SB.json = json
