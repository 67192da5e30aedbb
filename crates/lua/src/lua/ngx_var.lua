-- `ngx.var`: the variables of nginx. What Lua code has written to a variable is kept with the request.
-- Source: lua-resty-core, lib/resty/core/var.lua; kong/templates/nginx_kong.lua and kong/runloop/handler.lua.
local SB = ...
local functions, cx, constants, own = SB.functions, SB.cx, SB.constants, SB.ngx
local ffi_string = require("ffi").string
local type, error, tostring, lower, setmetatable, band, find, sub =
  type, error, tostring, string.lower, setmetatable, bit.band, string.find, string.sub
local c_var, c_set_text, c_set_header = functions.var, functions.set_text, functions.set_header
local P, SET_TEXT = constants.phase, constants.set_text
local ROUTED = P.access + P.response + P.header_filter + P.body_filter + P.log
local REQUEST_HEADER, SET = constants.header.request, constants.change.set

-- Returns a header of a trusted proxy in front.
local trusted = SB.code_reader("trusted_peer")
local function told(name)
  return trusted() == 1 and kong.request.get_header(name) or nil
end

local stripped = SB.text_reader("stripped")

-- Variables that the gateway computes of others. They are those that Kong sets for the upstream.
-- Source: kong/runloop/handler.lua access.
local computed = {
  upstream_scheme = function()
    local service = kong.router and kong.router.get_service and kong.router.get_service()
    return service and service.protocol or ""
  end,
  upstream_x_forwarded_proto = function() return kong.request.get_forwarded_scheme() end,
  upstream_x_forwarded_host = function() return kong.request.get_forwarded_host() end,
  upstream_x_forwarded_port = function() return tostring(kong.request.get_forwarded_port()) end,
  upstream_x_forwarded_path = function()
    local path = told("x-forwarded-path")
    if path then return path end
    path = own.var.request_uri
    local at = find(path, "?", 2, true)
    return at and sub(path, 1, at - 1) or path
  end,
  upstream_x_forwarded_prefix = function()
    local prefix = told("x-forwarded-prefix") or stripped()
    if prefix == "" or prefix == "/" then return nil end
    return prefix
  end,
  upstream_x_forwarded_for = function()
    local known, peer = own.var.http_x_forwarded_for, own.var.realip_remote_addr
    if known then return known .. ", " .. peer end
    return own.var.remote_addr
  end,
  upstream_connection = function()
    return own.var.upstream_upgrade ~= "" and "keep-alive, Upgrade" or "keep-alive"
  end,
  upstream_upgrade = function()
    local upgrade = own.var.http_upgrade
    return upgrade and lower(upgrade) == "websocket" and "websocket" or ""
  end,
  upstream_via = function()
    local version = kong.request.get_http_version()
    local via = (version == 2 and "2" or version == 1 and "1.0" or "1.1") .. " kong/" .. kong.version
    local known = own.var.http_via
    return known and known .. ", " .. via or via
  end,
  upstream_te = function() return "" end,
  upstream_host = function() return "" end,
}

-- What is done when a variable is written. A variable that is not here can be kept only if it has a prefix of Kong's.
local written = {
  args = function(text) c_set_text(cx, SET_TEXT.query, text, #text) end,
  upstream_uri = function(text)
    local at = find(text, "?", 1, true)
    local path = at and sub(text, 1, at - 1) or text
    c_set_text(cx, SET_TEXT.path, path, #path)
    if at then
      local query = sub(text, at + 1)
      c_set_text(cx, SET_TEXT.query, query, #query)
    end
  end,
  upstream_host = function(text) c_set_header(cx, REQUEST_HEADER, SET, "Host", 4, text, #text) end,
  upstream_scheme = function(text) c_set_text(cx, SET_TEXT.scheme, text, #text) end,
}
for _, name in ipairs{
  "limit_rate", "upstream_te", "upstream_upgrade", "upstream_connection", "upstream_x_forwarded_for",
  "upstream_x_forwarded_proto", "upstream_x_forwarded_host", "upstream_x_forwarded_port", "upstream_x_forwarded_path",
  "upstream_x_forwarded_prefix", "upstream_via", "upstream_keepalive", "ctx_ref", "kong_proxy_mode",
} do
  written[name] = function() end
end
local read_only = {}
for _, name in ipairs{
  "request_method", "request_uri", "document_uri", "host", "http_host", "scheme", "remote_addr", "remote_port",
  "server_port", "server_addr", "server_name", "server_protocol", "status", "request", "request_length", "request_time",
  "request_id", "query_string", "is_args", "remote_user", "hostname", "pid", "nginx_version", "content_type",
  "content_length", "body_bytes_sent", "bytes_sent", "connection", "binary_remote_addr", "request_body",
} do
  read_only[name] = true
end

local function variables()
  local context = SB.context()
  local vars = context.vars
  if not vars then
    vars = {}
    context.vars = vars
  end
  return vars
end
SB.variables = variables

own.var = setmetatable({}, {
  __index = function(_, name)
    SB.check_request(3)
    if type(name) == "number" then return nil end
    if type(name) ~= "string" then error("bad variable name", 2) end
    name = lower(name)
    if cx.context ~= 0 then
      local vars = SB.context().vars
      local value = vars and vars[name]
      if value == false then return nil end
      if value then return value end
    end
    local code = c_var(cx, name, #name)
    if code == 1 then return ffi_string(cx.ptr, cx.len) end
    local compute = computed[name]
    if compute then
      -- Kong sets these variables after its routing.
      if band(cx.phase, ROUTED) == 0 then return "" end
      return (compute())
    end
    return nil
  end,
  __newindex = function(_, name, value)
    SB.check_request(3)
    if type(name) ~= "string" then error("bad variable name", 2) end
    name = lower(name)
    local write = written[name]
    if not write then
      if name == "uri" then error('variable "uri" not changeable', 2) end
      if read_only[name] then error("variable not changeable", 2) end
      error('variable "' .. name .. '" not found for writing; maybe it is a built-in variable that is not changeable '
        .. 'or you forgot to use "set $' .. name .. " '';\" in the config file to define it first", 2)
    end
    if value == nil then
      write("")
      variables()[name] = false
      return
    end
    local text = tostring(value)
    write(text)
    variables()[name] = text
  end,
})
