-- `ngx.req`: the request, and changes to it.
-- Source: lua-resty-core, lib/resty/core/request.lua; lua-nginx-module, ngx_http_lua_{args,req_body,uri}.c.
local SB = ...
local functions, cx, constants, own = SB.functions, SB.cx, SB.constants, SB.ngx
local type, error, tostring, select, concat, gsub, lower, format, byte, find =
  type, error, tostring, select, table.concat, string.gsub, string.lower, string.format, string.byte, string.find
local check_phase, bad_argument, check_request = SB.check_phase, SB.bad_argument, SB.check_request
local c_set_header, c_set_text, c_text = functions.set_header, functions.set_text, functions.text
local CONTENT, P = SB.CONTENT, constants.phase
local REQUEST = constants.header.request
local SET, ADD, REMOVE = constants.change.set, constants.change.add, constants.change.remove
local TEXT = constants.set_text
local req = own.req

local is_internal = SB.code_reader("is_internal")
req.is_internal = function(...)
  check_request(3)
  return is_internal() == 1
end

local method = SB.text_reader("method")
req.get_method = function(...)
  check_request(3)
  return (method())
end
local methods = {
  [2] = "GET", [4] = "HEAD", [8] = "POST", [16] = "PUT", [32] = "DELETE", [64] = "MKCOL", [128] = "COPY", [256] = "MOVE",
  [512] = "OPTIONS", [1024] = "PROPFIND", [2048] = "PROPPATCH", [4096] = "LOCK", [8192] = "UNLOCK", [16384] = "PATCH",
  [32768] = "TRACE",
}
req.set_method = function(number, ...)
  check_request(3)
  if type(number) ~= "number" then error("bad method number", 2) end
  local name = methods[number]
  if not name then error("unsupported HTTP method: " .. number, 2) end
  c_set_text(cx, TEXT.method, name, #name)
end

local http_version = SB.number_reader("http_version")
req.http_version = function(...)
  check_request(3)
  return (http_version())
end

local started, now = SB.number_reader("start_time"), SB.number_reader("now")
req.start_time = function(...)
  check_request(3)
  local time = started()
  if time then return time end
  -- Before the log phase, this is when the request was first asked for it.
  local context = SB.context()
  context.started = context.started or math.floor(now() * 1000) / 1000
  return context.started
end

req.raw_header = function(no_line, ...)
  check_request(3)
  local out = {}
  if not no_line then out[1] = own.var.request .. "\r\n" end
  local count = functions.list(cx, constants.list.request_headers, 2147483647)
  for i = 0, count - 1 do
    local name, value = SB.item(i)
    out[#out + 1] = name .. ": " .. value .. "\r\n"
  end
  out[#out + 1] = "\r\n"
  return concat(out)
end

-- Adds or replaces a header. An empty value removes it, because nginx sends no empty header.
local function change(how, name, value)
  if type(value) == "table" then
    if how == SET then c_set_header(cx, REQUEST, REMOVE, name, #name, "", 0) end
    for i = 1, #value do
      local text = tostring(value[i])
      c_set_header(cx, REQUEST, ADD, name, #name, text, #text)
    end
    return
  end
  local text = value == nil and "" or tostring(value)
  if text == "" then
    if how == SET then c_set_header(cx, REQUEST, REMOVE, name, #name, "", 0) end
    return
  end
  c_set_header(cx, REQUEST, how, name, #name, text, #text)
end

req.set_header = function(name, value, ...)
  check_request(3)
  if type(name) ~= "string" then
    if name == nil then
      -- The error of Kong's own function around this one.
      error("...peers/kong/dest/openresty/site/lualib/resty/kong/var.lua:59: attempt to index local 'str' (a nil value)", 0)
    end
    name = tostring(name)
  end
  change(SET, name, value)
end
req.clear_header = function(name, ...)
  check_request(3)
  name = tostring(name)
  c_set_header(cx, REQUEST, REMOVE, name, #name, "", 0)
end

-- Query and path. The upstream's path is Kong's own (`upstream_uri`), so `set_uri` changes only what Lua code sees.
req.set_uri_args = function(...)
  if select("#", ...) ~= 1 then error("expecting 1 argument but seen " .. select("#", ...), 2) end
  check_request(3)
  local args = ...
  local kind = type(args)
  if kind == "number" then
    args = tostring(args)
  elseif kind == "table" then
    local text, err = SB.encode_args(args)
    if not text then error(err, 2) end
    args = text
  elseif kind ~= "string" then
    bad_argument(1, "string, number, or table expected, but got " .. kind, 2)
  end
  own.var.args = args
end

req.set_uri = function(uri, jump, binary, ...)
  if type(uri) ~= "string" then
    bad_argument(1, "string expected, got " .. (uri == nil and "no value" or type(uri)), 2)
  end
  if uri == "" then error("attempt to use zero-length uri", 2) end
  if not binary then
    local at = find(uri, "[%z\1-\31\127]")
    if at then
      error(format('unsafe byte "0x%02x" in uri "%s" (maybe you want to set the \'binary\' argument?)',
        byte(uri, at), SB.escaped(uri)), 2)
    end
  end
  -- Only the rewrite phase of a location can jump, and Kong's is not one.
  if jump then check_phase(0, 3) end
  check_request(3)
  SB.variables().uri = uri
end

-- The body.
local body, body_state = SB.text_reader("body"), SB.code_reader("body_state")

-- Whether the body was too large for the memory.
function SB.body_is_missing(...)
  return body_state() == 2
end

-- Whether the body was read, or set.
function SB.body_is_read(...)
  return body_state() ~= 0
end

req.read_body = function(...)
  check_phase(CONTENT, 3)
  if body_state() == 0 then SB.suspend(SB.wait.body) end
end
req.get_body_data = function(max, ...)
  check_request(3)
  local state = body_state()
  if state == 0 or state == 3 then return nil end
  local text = body()
  if not text or text == "" then return nil end
  if max and max > 0 then return text:sub(1, max) end
  return text
end
-- Bodies are never in files here.
req.get_body_file = function(...)
  check_request(3)
  return nil
end
req.discard_body = function(...)
  check_phase(CONTENT, 3)
end

local function set_body(text)
  c_set_text(cx, TEXT.body, text, #text)
  local length = tostring(#text)
  c_set_header(cx, REQUEST, SET, "Content-Length", 14, length, #length)
end
req.set_body_data = function(...)
  local count = select("#", ...)
  if count ~= 1 then error("expecting 1 arguments but seen " .. count, 2) end
  check_phase(CONTENT, 3)
  local text = tostring((...))
  if not SB.body_is_read() then error("request body not read yet", 2) end
  set_body(text)
end
req.init_body = function(size, ...)
  check_phase(CONTENT, 3)
  SB.context().body = {}
end
req.append_body = function(text, ...)
  check_phase(CONTENT, 3)
  local pieces = SB.context().body
  if not pieces then error("request body not initialized", 2) end
  pieces[#pieces + 1] = tostring(text)
end
req.finish_body = function(...)
  check_phase(CONTENT, 3)
  local context = SB.context()
  if not context.body then error("request body not initialized", 2) end
  set_body(concat(context.body))
  context.body = nil
end
req.socket = function(...)
  check_phase(CONTENT, 3)
  local length = own.var.content_length
  if not length and not own.var.http_transfer_encoding then return nil, "no body" end
  error("ngx.req.socket is not supported", 2)
end
