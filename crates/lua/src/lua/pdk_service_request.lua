-- `kong.service.request`: the request that the service gets. Source: kong/pdk/service/request.lua.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local band, type, error, tostring, next = bit.band, type, error, tostring, next
local sub, find, match = string.sub, string.find, string.match
local failed, wrong_phase, json, mime = SB.failed, SB.wrong_phase, SB.json, SB.mime
local c_set_text, c_set_number, c_set_header = functions.set_text, functions.set_number, functions.set_header
local REQUEST = constants.header.request
local SET, ADD, REMOVE = constants.change.set, constants.change.add, constants.change.remove

local request = {}
kong.service.request = request

local RA, RA_LIST = SB.phases("rewrite, access")
local RAB, RAB_LIST = SB.phases("rewrite, access, balancer")

-- Sets a text of the request.
local function set(what, text)
  local code = c_set_text(cx, what, text, #text)
  if code < 0 then failed(code) end
end

request.enable_buffering = function(...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  c_set_number(cx, constants.set_number.buffer_response, 1)
end

request.set_scheme = function(scheme, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(scheme) ~= "string" then error("scheme must be a string", 2) end
  if scheme ~= "http" and scheme ~= "https" then error("invalid scheme: " .. scheme, 2) end
  set(constants.set_text.scheme, scheme)
end

local escape_path = SB.encoder("escape_path")
request.set_path = function(path, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(path) ~= "string" then error("path must be a string", 2) end
  if sub(path, 1, 1) ~= "/" then error("path must start with /", 2) end
  set(constants.set_text.path, escape_path(path))
end

request.set_raw_query = function(query, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(query) ~= "string" then error("query must be a string", 2) end
  set(constants.set_text.query, query)
end

-- The methods that nginx can change a request to.
local methods = {}
for name in ("GET HEAD PUT POST DELETE OPTIONS MKCOL COPY MOVE PROPFIND PROPPATCH LOCK UNLOCK PATCH TRACE"):gmatch("%u+") do
  methods[name] = true
end

request.set_method = function(method, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(method) ~= "string" then error("method must be a string", 2) end
  if not methods[method] then error("invalid method: " .. method, 2) end
  set(constants.set_text.method, method)
end

request.set_query = function(args, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(args) ~= "table" then error("args must be a table", 2) end
  set(constants.set_text.query, SB.encode_form(args, 3))
end

request.clear_query_arg = function(name, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(name) ~= "string" then error("query argument name must be a string", 2) end
  set(constants.set_text.without_arg, name)
end

local function change(name, value, how)
  if value == "" then value = " " end
  value = tostring(value)
  local code = c_set_header(cx, REQUEST, how, name, #name, value, #value)
  if code < 0 then failed(code) end
end

-- Sets or adds a header with one value or several.
local function change_all(name, value, how)
  if type(value) ~= "table" then return change(name, value, how) end
  if how == SET then change(name, "", REMOVE) end
  for i = 1, #value do change(name, value[i], ADD) end
end

request.set_header = function(name, value, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  SB.check_header_name(name, 3)
  SB.check_header_value(name, value, 3)
  change_all(name, value, SET)
end

request.add_header = function(name, value, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  SB.check_header_name(name, 3)
  SB.check_header_value(name, value, 3)
  change_all(name, value, ADD)
end

request.clear_header = function(name, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(name) ~= "string" then error("header must be a string", 2) end
  change(name, "", REMOVE)
end

request.set_headers = function(headers, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(headers) ~= "table" then error("headers must be a table", 2) end
  SB.check_headers(headers, 3)
  for name, value in next, headers do change_all(name, value, SET) end
end

request.set_raw_body = function(body, ...)
  if band(cx.phase, RAB) == 0 then wrong_phase(RAB_LIST, nil, 3) end
  if type(body) ~= "string" then error("body must be a string", 2) end
  set(constants.set_text.body, body)
end

-- Returns the boundary of a content type.
local function boundary_of(content_type)
  return match(content_type, ';%s*boundary="([^"]+)"') or match(content_type, ";%s*boundary=([^;%s]+)")
end

request.set_body = function(args, content_type, ...)
  if band(cx.phase, RA) == 0 then wrong_phase(RA_LIST, nil, 3) end
  if type(args) ~= "table" then error("args must be a table", 2) end
  if content_type ~= nil and type(content_type) ~= "string" then error("mime must be a string", 2) end
  content_type = content_type or kong.request.get_header("Content-Type")
  if not content_type then
    return nil, "content type was neither explicitly given as an argument or received as a header"
  end
  local semicolon = find(content_type, ";", 1, true)
  local base = semicolon and sub(content_type, 1, semicolon - 1) or content_type
  local body, err
  if base == mime.form then
    body = SB.encode_form(args, 3)
  elseif base == mime.json then
    body, err = json.write(args)
    if not body then error(err, 2) end
  elseif base == mime.multipart then
    local boundary
    body, boundary = SB.encode_multipart(args, boundary_of(content_type), 3)
    content_type = base .. "; boundary=" .. boundary
  else
    error("unsupported content type " .. base, 2)
  end
  set(constants.set_text.body, body)
  change("Content-Type", content_type, SET)
  return true
end
