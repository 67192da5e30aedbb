-- `kong.service` and `kong.service.response`: where the request goes, and what came back.
-- Source: kong/pdk/{service,service/response}.lua.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local ffi_string = require("ffi").string
local band, type, error, floor = bit.band, type, error, math.floor
local failed, wrong_phase = SB.failed, SB.wrong_phase
local c_set_text, c_set_number, c_header = functions.set_text, functions.set_number, functions.header
local set_text, set_number = constants.set_text, constants.set_number

local service = {response = {}}
kong.service = service

local A, A_LIST = SB.phases("access")
local RAB, RAB_LIST = SB.phases("rewrite, access, balancer, preread")

-- Raises an error if a value is not an integer within bounds.
local function check_integer(value, name, least, most)
  if type(value) ~= "number" or floor(value) ~= value then error(name .. " must be an integer", 3) end
  if value < least or value > most then
    error(name .. " must be an integer between " .. least .. " and " .. most .. ": given " .. value, 3)
  end
end

service.set_upstream = function(host, ...)
  if band(cx.phase, A) == 0 then wrong_phase(A_LIST, nil, 3) end
  if type(host) ~= "string" then error("host must be a string", 2) end
  local code = c_set_text(cx, set_text.upstream, host, #host)
  if code < 0 then failed(code) end
  if code == 0 then return nil, "could not find an Upstream named '" .. host .. "'" end
  return true
end

service.set_target = function(host, port, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(host) ~= "string" then error("host must be a string", 2) end
  check_integer(port, "port", 0, 65535)
  local code = c_set_text(cx, set_text.target_host, host, #host)
  if code < 0 then failed(code) end
  c_set_number(cx, set_number.target_port, port)
end

service.set_target_retry_callback = function(callback, ...)
  if band(cx.phase, A) == 0 then wrong_phase(A_LIST, nil, 3) end
  if type(callback) ~= "function" then error("retry_callback must be a function", 2) end
  kong.log.warn("set_target_retry_callback has no effect: each retry goes to the target that was set")
end

service.set_retries = function(retries, ...)
  if band(cx.phase, A) == 0 then wrong_phase(A_LIST, nil, 3) end
  check_integer(retries, "retries", 0, 32767)
  c_set_number(cx, set_number.retries, retries)
end

service.set_timeouts = function(connect, write, read, ...)
  if band(cx.phase, A) == 0 then wrong_phase(A_LIST, nil, 3) end
  check_integer(connect, "connect_timeout", 1, 2147483646)
  check_integer(write, "write_timeout", 1, 2147483646)
  check_integer(read, "read_timeout", 1, 2147483646)
  c_set_number(cx, set_number.connect_timeout, connect)
  c_set_number(cx, set_number.write_timeout, write)
  c_set_number(cx, set_number.read_timeout, read)
end

service.set_tls_cert_key = function(chain, key, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(chain) ~= "cdata" then error("chain must be a parsed cdata object", 2) end
  if type(key) ~= "cdata" then error("key must be a parsed cdata object", 2) end
  return nil, "the client certificate of a service cannot be changed for a request"
end

service.set_tls_verify = function(on, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(on) ~= "boolean" then error("argument must be a boolean", 2) end
  local code = c_set_number(cx, set_number.tls_verify, on and 1 or 0)
  if code < 0 then failed(code) end
  return true
end

service.set_tls_verify_depth = function(depth, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(depth) ~= "number" then error("argument must be a number", 2) end
  local code = c_set_number(cx, set_number.tls_verify_depth, depth)
  if code < 0 then failed(code) end
  return true
end

service.set_tls_verify_store = function(store, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(store) ~= "table" then error("argument must be a resty.openssl.x509.store object", 2) end
  error("store expects a resty.openssl.x509.store object but found table", 2)
end

local response = service.response
local S, S_LIST = SB.phases("response, header_filter, body_filter, log")

local status = SB.number_reader("upstream_status")
response.get_status = function(...)
  if band(cx.phase, S) == 0 then wrong_phase(S_LIST, nil, 3) end
  return status()
end

local UPSTREAM_HEADERS = constants.list.upstream_headers
response.get_headers = function(max, ...)
  if band(cx.phase, S) == 0 then wrong_phase(S_LIST, nil, 3) end
  if max == nil then return SB.headers(UPSTREAM_HEADERS, 100) end
  if type(max) ~= "number" then error("max_headers must be a number", 2) end
  if max < 1 then error("max_headers must be >= 1", 2) end
  if max > 1000 then error("max_headers must be <= 1000", 2) end
  return SB.headers(UPSTREAM_HEADERS, max)
end

local function header(name)
  local code = c_header(cx, 2, name, #name)
  if code == 1 then return ffi_string(cx.ptr, cx.len) end
  if code ~= 0 then failed(code) end
  return nil
end

response.get_header = function(name, ...)
  if band(cx.phase, S) == 0 then wrong_phase(S_LIST, nil, 3) end
  if type(name) ~= "string" then error("name must be a string", 2) end
  return header(name)
end

local body = SB.text_reader("upstream_body")
local NOT_BUFFERED =
  "service body is only available with buffered proxying (see: kong.service.request.enable_buffering function)"

response.get_raw_body = function(...)
  if band(cx.phase, S) == 0 then wrong_phase(S_LIST, nil, 3) end
  local text = body()
  if not text then error(NOT_BUFFERED, 2) end
  return text
end

response.get_body = function(mimetype, max_args, ...)
  if band(cx.phase, S) == 0 then wrong_phase(S_LIST, nil, 3) end
  if not body() then error(NOT_BUFFERED, 2) end
  local content_type = mimetype or header("content-type")
  if content_type == nil then return nil, "missing content type" end
  local value, err, mime = SB.parse_body(content_type, max_args, body)
  return value, err, mime
end
