-- `kong.request`: the client's request. Source: kong/pdk/request.lua.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local ffi_string = require("ffi").string
local band, type, error, setmetatable, tonumber = bit.band, type, error, setmetatable, tonumber
local lower, gsub = string.lower, string.gsub
local item, failed, wrong_phase = SB.item, SB.failed, SB.wrong_phase
local c_header, c_list, c_parse_args, c_text =
  functions.header, functions.list, functions.parse_args, functions.text

local request = {}
kong.request = request

local R = SB.phases("rewrite, access, response, header_filter, body_filter, log, error, admin_api")
local R_LISTED = "rewrite, access, balancer, response, cluster_listener, header_filter, body_filter, log, error, admin_api"

local function check(...)
  if band(cx.phase, R) == 0 then wrong_phase(R_LISTED, nil, 4) end
end

-- Makes a function without arguments of a reader.
local function reads(read)
  return function(...)
    check()
    return read()
  end
end

request.get_scheme = reads(SB.text_reader("scheme"))
request.get_host = reads(SB.text_reader("host"))
request.get_method = reads(SB.text_reader("method"))
request.get_raw_path = reads(SB.text_reader("path"))
request.get_path_with_query = reads(SB.text_reader("target"))
request.get_raw_query = reads(SB.text_reader("raw_query"))
request.get_http_version = reads(SB.number_reader("http_version"))

local port = SB.number_reader("port")
request.get_port = function(...)
  SB.require_phase()
  return port()
end

local raw_path, normalize = SB.text_reader("path"), SB.encoder("normalize_path")
request.get_path = function(...)
  check()
  return normalize(raw_path())
end

-- Returns a function that reads a value which a trusted proxy in front may tell in a header.
local trusted = SB.code_reader("trusted_peer")
local function told(header, own)
  return function(...)
    check()
    if trusted() == 1 and c_header(cx, 0, header, #header) == 1 then return ffi_string(cx.ptr, cx.len) end
    return own()
  end
end

request.get_forwarded_scheme = told("x-forwarded-proto", request.get_scheme)
request.get_forwarded_path = told("x-forwarded-path", request.get_path)

-- The prefix that the route strips is known to the upstream's headers only, which are made after `access`.
local stripped, EARLY = SB.text_reader("stripped"), SB.phases("rewrite, access")
request.get_forwarded_prefix = told("x-forwarded-prefix", function(...)
  if band(cx.phase, EARLY) ~= 0 then return nil end
  local prefix = stripped()
  if prefix == "" then return nil end
  return prefix
end)

-- Returns host and port of X-Forwarded-Host from a trusted proxy. What precedes `@` is no host.
local function forwarded_host()
  if trusted() ~= 1 or c_header(cx, 0, "x-forwarded-host", 16) ~= 1 then return nil end
  local host = ffi_string(cx.ptr, cx.len)
  local at = host:find("@", 1, true)
  if at then host = host:sub(at + 1) end
  local colon = host:find(":%d*$")
  if not colon then return lower(host) end
  return lower(host:sub(1, colon - 1)), tonumber(host:sub(colon + 1))
end

request.get_forwarded_host = function(...)
  check()
  return forwarded_host() or request.get_host()
end

local function in_range(value)
  return value and value >= 1 and value <= 65535
end

request.get_forwarded_port = function(...)
  check()
  if trusted() == 1 then
    if c_header(cx, 0, "x-forwarded-port", 16) == 1 then
      local told_port = tonumber(ffi_string(cx.ptr, cx.len))
      if in_range(told_port) then return told_port end
    end
    local _, host_port = forwarded_host()
    if in_range(host_port) then return host_port end
  end
  return port()
end

request.get_header = function(name, ...)
  if band(cx.phase, R) == 0 then wrong_phase(R_LISTED, nil, 3) end
  if type(name) ~= "string" then error("header name must be a string", 2) end
  local code = c_header(cx, 0, name, #name)
  if code == 1 then return ffi_string(cx.ptr, cx.len) end
  if code ~= 0 then failed(code) end
  return nil
end

-- Reading a header by another spelling finds it, as in OpenResty.
local headers_mt = {
  __index = function(t, name)
    if type(name) ~= "string" then return nil end
    local other = gsub(lower(name), "_", "-")
    if other == name then return nil end
    return rawget(t, other)
  end,
}
SB.headers_mt = headers_mt

-- Returns the table of a list of `count` headers. Repeated ones are lists.
local function headers_of(count)
  local t = {}
  for i = 0, count - 1 do
    local name, value = item(i)
    name = lower(name)
    local known = rawget(t, name)
    if known == nil then
      t[name] = value
    elseif type(known) == "table" then
      known[#known + 1] = value
    else
      t[name] = {known, value}
    end
  end
  return setmetatable(t, headers_mt)
end

-- Returns the headers of a list. `most` 0 has no limit.
function SB.headers(list, most, ...)
  local count = c_list(cx, list, most == 0 and 2147483647 or most)
  if count < 0 then failed(count) end
  local truncated = cx.number ~= 0 and "truncated" or nil
  return headers_of(count), truncated
end

local REQUEST_HEADERS = constants.list.request_headers
request.get_headers = function(max, ...)
  check()
  if max == nil then return SB.headers(REQUEST_HEADERS, 100) end
  if type(max) ~= "number" then error("max_headers must be a number", 2) end
  if max < 1 then error("max_headers must be >= 1", 2) end
  if max > 1000 then error("max_headers must be <= 1000", 2) end
  return SB.headers(REQUEST_HEADERS, max)
end

-- Returns the table of arguments. An argument without `=` is true.
function SB.args(text, most, ...)
  local count = c_parse_args(cx, most == 0 and 2147483647 or most, text, #text)
  if count < 0 then failed(count) end
  local truncated = cx.number ~= 0 and "truncated" or nil
  local t = {}
  for i = 0, count - 1 do
    local name, value, kind = item(i)
    if kind == 2 then value = true end
    local known = t[name]
    if known == nil then
      t[name] = value
    elseif type(known) == "table" then
      known[#known + 1] = value
    else
      t[name] = {known, value}
    end
  end
  return t, truncated
end

local raw_query = SB.text_reader("raw_query")
request.get_query = function(max, ...)
  check()
  if max == nil then return SB.args(raw_query(), 100) end
  if type(max) ~= "number" then error("max_args must be a number", 2) end
  if max < 1 then error("max_args must be >= 1", 2) end
  if max > 1000 then error("max_args must be <= 1000", 2) end
  return SB.args(raw_query(), max)
end

request.get_query_arg = function(name, ...)
  check()
  if type(name) ~= "string" then error("query argument name must be a string", 2) end
  local value = SB.args(raw_query(), 100)[name]
  if type(value) == "table" then return value[1] end
  return value
end

local start_time = SB.number_reader("start_time")
request.get_start_time = function(...)
  check()
  local started = start_time()
  return started and started * 1000
end

local CAPTURES = constants.list.captures
request.get_uri_captures = function(ctx, ...)
  check()
  local named, unnamed = {}, {}
  if ctx ~= nil then
    local matches = ctx.router_matches
    for k, v in next, matches and matches.uri_captures or {} do
      if type(k) == "number" then unnamed[k] = v else named[k] = v end
    end
    return {named = named, unnamed = unnamed}
  end
  local count = c_list(cx, CAPTURES, 2147483647)
  if count < 0 then failed(count) end
  for i = 0, count - 1 do
    local name, value, kind = item(i)
    if kind == 3 then unnamed[tonumber(name)] = value else named[name] = value end
  end
  return {named = named, unnamed = unnamed}
end
