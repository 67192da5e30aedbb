-- Encodings, hashes and times of `ngx`.
-- Source: lua-resty-core, lib/resty/core/{base64,hash,misc,time,uri}.lua; lua-nginx-module, ngx_http_lua_{args,string}.c.
local SB = ...
local functions, cx, constants, own = SB.functions, SB.cx, SB.constants, SB.ngx
local ffi_string = require("ffi").string
local type, error, tostring, tonumber, floor, next, concat = type, error, tostring, tonumber, math.floor, next, table.concat
local c_encode, c_time_write, c_time_parse, c_hmac =
  functions.encode, functions.time_write, functions.time_parse, functions.hmac_sha1
local encoder, bad_argument = SB.encoder, SB.bad_argument

local function as_text(value)
  if type(value) == "string" then return value end
  if value == nil then return "" end
  return tostring(value)
end

local base64, base64_unpadded, base64url = encoder("base64"), encoder("base64_unpadded"), encoder("base64url")
own.encode_base64 = function(text, no_padding, ...)
  text = as_text(text)
  if no_padding then
    local encoded = base64_unpadded(text)
    return encoded
  end
  local encoded = base64(text)
  return encoded
end

-- Makes a decoder that wants a text and returns nil for one that is malformed.
local function decoder(name)
  local decode = encoder(name)
  return function(text, ...)
    if type(text) ~= "string" then error("string argument only", 2) end
    local decoded = decode(text)
    return decoded
  end
end
own.decode_base64 = decoder("decode_base64")
-- The module `ngx.base64` of lua-resty-core.
local decode_base64url = encoder("decode_base64url")
package.preload["ngx.base64"] = function()
  return {
    encode_base64url = function(text, ...)
      if type(text) ~= "string" then return nil, "must provide a string" end
      return (base64url(text))
    end,
    decode_base64url = function(text, ...)
      if type(text) ~= "string" then return nil, "must provide a string" end
      local decoded = decode_base64url(text)
      if not decoded then return nil, "invalid input" end
      return decoded
    end,
    decode_base64mime = function(text, ...)
      if type(text) ~= "string" then return nil, "must provide a string" end
      return own.decode_base64((text:gsub("[^%w+/=]", "")))
    end,
  }
end

local escape_whole, escape_part = encoder("escape_uri_whole"), encoder("escape_uri")
own.escape_uri = function(text, kind, ...)
  if kind ~= nil and type(kind) ~= "number" then error('"type" is not a number', 2) end
  kind = kind or 2
  if kind ~= 0 and kind ~= 2 then error('"type" ' .. kind .. " out of range", 2) end
  text = as_text(text)
  local escaped
  if kind == 0 then escaped = escape_whole(text) else escaped = escape_part(text) end
  return escaped
end
local unescape = encoder("unescape_uri")
own.unescape_uri = function(text, ...)
  local plain = unescape(as_text(text))
  return plain
end

-- Appends `name=value` to a list, or `name` alone for true.
local function append_arg(out, name, value)
  local kind = type(value)
  if kind == "boolean" then
    if value then out[#out + 1] = name end
  elseif kind == "string" or kind == "number" then
    out[#out + 1] = name .. "=" .. escape_part(tostring(value))
  else
    return "attempt to use " .. kind .. " as query arg value"
  end
end

-- Returns the query of a table, or nil and an error.
function SB.encode_args(t, ...)
  local out = {}
  for name, value in next, t do
    if type(name) ~= "string" then return nil, 'attempt to use a non-string key in the "args" option table' end
    name = escape_part(name)
    if type(value) == "table" then
      for i = 1, #value do
        local err = append_arg(out, name, value[i])
        if err then return nil, err end
      end
    else
      local err = append_arg(out, name, value)
      if err then return nil, err end
    end
  end
  return concat(out, "&")
end

own.encode_args = function(...)
  if select("#", ...) ~= 1 then error("expecting 1 argument but seen " .. select("#", ...), 2) end
  local t = ...
  if type(t) ~= "table" then bad_argument(1, "table expected, got " .. type(t), 2) end
  local text, err = SB.encode_args(t)
  if not text then error(err, 2) end
  return text
end

local md5, md5_binary, sha1 = encoder("md5"), encoder("md5_binary"), encoder("sha1")
own.md5 = function(text, ...) return (md5(as_text(text))) end
own.md5_bin = function(text, ...) return (md5_binary(as_text(text))) end
own.sha1_bin = function(text, ...) return (sha1(as_text(text))) end
own.hmac_sha1 = function(key, text, ...)
  key, text = as_text(key), as_text(text)
  if c_hmac(cx, key, #key, text, #text) ~= 1 then error("an internal error", 2) end
  return ffi_string(cx.ptr, cx.len)
end

local CRC32 = constants.encoding.crc32
local function crc32(text)
  text = as_text(text)
  c_encode(cx, CRC32, text, #text)
  return cx.number
end
own.crc32_short = function(text, ...) return (crc32(text)) end
own.crc32_long = own.crc32_short

local quote = encoder("quote_sql")
own.quote_sql_str = function(text, ...) return (quote(as_text(text))) end

-- Times. OpenResty's clock has milliseconds.
local now = SB.number_reader("now")
own.now = function(...) return floor(now() * 1000) / 1000 end
own.time = function(...) return floor(now()) end
own.update_time = function(...) end

local FORM = constants.time
local function written(form, seconds)
  if c_time_write(cx, form, seconds) == 1 then return ffi_string(cx.ptr, cx.len) end
  return nil
end
own.today = function(...) return (written(FORM.today, now())) end
own.localtime = function(...) return (written(FORM["local"], now())) end
own.utctime = function(...) return (written(FORM.utc, now())) end
local function formatter(form)
  return function(seconds, ...)
    if type(seconds) ~= "number" then error("number argument only", 2) end
    return (written(form, seconds))
  end
end
own.http_time = formatter(FORM.http)
own.cookie_time = formatter(FORM.cookie)
own.parse_http_time = function(text, ...)
  if type(text) ~= "string" then error("string argument only", 2) end
  if c_time_parse(cx, text, #text) == 1 then return cx.number end
  return nil
end
