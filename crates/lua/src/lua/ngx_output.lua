-- What `ngx` sends to the client: say, print, exit, redirect, and the headers and the status of the response.
-- Source: lua-nginx-module, ngx_http_lua_output.c and ngx_http_lua_control.c; lua-resty-core, lib/resty/core/response.lua.
local SB = ...
local functions, cx, constants, own = SB.functions, SB.cx, SB.constants, SB.ngx
local type, error, tostring, tonumber, select, floor, gsub = type, error, tostring, tonumber, select, math.floor, string.gsub
local concat, lower, char, band, next = table.concat, string.lower, string.char, bit.band, next
local setmetatable, format = setmetatable, string.format
local check_phase, bad_argument = SB.check_phase, SB.bad_argument
local c_say, c_say_end, c_has_said = functions.say, functions.say_end, functions.has_said
local c_set_header, c_set_number, c_redirect = functions.set_header, functions.set_number, functions.redirect
local CONTENT, P = SB.CONTENT, constants.phase
local RESPONSE, STATUS = constants.header.response, constants.set_number.status
local SET, ADD, REMOVE = constants.change.set, constants.change.add, constants.change.remove

-- The status: that of the response, or the one that was set for it.
local status = SB.number_reader("status")
SB.ngx_getters.status = function(...)
  SB.check_request(4)
  return status() or SB.context().status or 0
end
SB.ngx_setters.status = function(value, ...)
  SB.check_request(4)
  local number = tonumber(value)
  if not number then error("number expected, got " .. type(value), 3) end
  if c_has_said(cx) == 1 then
    local text = "attempt to set ngx.status after sending out response headers"
    functions.log(cx, own.ERR, text, #text)
    return
  end
  -- In later phases the client has the status already.
  if band(cx.nginx, P.body_filter + P.log) ~= 0 then return end
  if c_set_number(cx, STATUS, number) ~= 1 then SB.context().status = number end
end
SB.ngx_getters.headers_sent = function(...)
  SB.check_request(4)
  return c_has_said(cx) == 1 or band(cx.nginx, P.body_filter + P.log) ~= 0
end

local function too_late(name)
  local text = "attempt to set ngx.header." .. name .. " after sending out response headers"
  functions.log(cx, own.ERR, text, #text)
end

-- `ngx.header`. A name with `_` has `-` in its place.
own.header = setmetatable({}, {
  __index = function(_, name)
    SB.check_request(3)
    if type(name) ~= "string" then return nil end
    name = gsub(name, "_", "-")
    local values = SB.response_values(name)
    if #values > 1 then return values end
    return values[1]
  end,
  __newindex = function(_, name, value)
    SB.check_request(3)
    name = gsub(tostring(name), "_", "-")
    if c_has_said(cx) == 1 or band(cx.nginx, P.body_filter) ~= 0 then return too_late(name) end
    if cx.nginx == P.log then return end
    if type(value) == "table" then
      c_set_header(cx, RESPONSE, REMOVE, name, #name, "", 0)
      for i = 1, #value do
        local text = tostring(value[i])
        c_set_header(cx, RESPONSE, ADD, name, #name, text, #text)
      end
    elseif value == nil then
      c_set_header(cx, RESPONSE, REMOVE, name, #name, "", 0)
    else
      local text = tostring(value)
      c_set_header(cx, RESPONSE, SET, name, #name, text, #text)
    end
  end,
})

local RESPONSE_HEADERS = constants.list.response_headers
-- Returns all values of a header of the response.
function SB.response_values(name, ...)
  local values, wanted = {}, lower(name)
  local count = functions.list(cx, RESPONSE_HEADERS, 2147483647)
  for i = 0, count - 1 do
    local other, value = SB.item(i)
    if lower(other) == wanted then values[#values + 1] = value end
  end
  return values
end

own.resp = {
  get_headers = function(max, raw, ...)
    SB.check_request(3)
    return SB.headers(RESPONSE_HEADERS, tonumber(max) or 100)
  end,
  add_header = function(name, value, ...)
    SB.check_request(3)
    if type(value) == "table" then
      for i = 1, #value do
        local text = tostring(value[i])
        c_set_header(cx, RESPONSE, ADD, name, #name, text, #text)
      end
      return
    end
    local text = tostring(value)
    c_set_header(cx, RESPONSE, ADD, name, #name, text, #text)
  end,
}

-- Numbers are written with 14 digits; whole ones that fit are written without an exponent below 1e15.
local function shown(value)
  if type(value) == "number" then return format("%.14g", value) end
  return value
end

-- Appends the texts of an argument. Returns the text of an error.
local function flatten(value, out, depth)
  local kind = type(value)
  if kind == "string" or kind == "number" then
    out[#out + 1] = shown(value)
  elseif kind == "boolean" or kind == "nil" then
    out[#out + 1] = tostring(value)
  elseif value == SB.null then
    out[#out + 1] = "null"
  elseif kind == "table" then
    local n = 0
    for key in next, value do
      if type(key) ~= "number" or floor(key) ~= key or key < 1 then return "non-array table found" end
      if key > n then n = key end
    end
    -- A list with holes may claim any length.
    if n > 1048576 or depth > 100 then return "non-array table found" end
    for i = 1, n do
      local bad = flatten(value[i], out, depth + 1)
      if bad then return bad end
    end
  else
    return "string, number, boolean, nil, ngx.null, or array table expected, but got " .. kind
  end
end

-- Says the arguments and an ending. -0 is written as 0.
local function say(ending, ...)
  check_phase(CONTENT, 4)
  local out = {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value == 0 then value = 0 end
    local bad = flatten(value, out, 1)
    if bad then bad_argument(i, bad, 3) end
  end
  out[#out + 1] = ending
  local text, context = concat(out), SB.context()
  local code = c_say(cx, context.status or 200, text, #text)
  if code == 1 then
    -- Kong's filter phases have run with the headers.
    cx.phase = P.body_filter
    return 1
  end
  return nil, "nginx output filter error"
end

own.say = function(...)
  local ok, err = say("\n", ...)
  return ok, err
end
own.print = function(...)
  local ok, err = say("", ...)
  return ok, err
end
own.flush = function(wait, ...)
  check_phase(CONTENT, 3)
  if c_has_said(cx) ~= 1 then return nil, "nothing to flush" end
  return 1
end
own.send_headers = function(...)
  check_phase(CONTENT, 3)
  if c_has_said(cx) ~= 1 then
    local ok, err = say("")
    return ok, err
  end
  return 1
end
own.eof = function(...)
  check_phase(CONTENT, 3)
  if c_has_said(cx) ~= 1 then say("") end
  c_say_end(cx)
  return 1
end

-- Ends the request with a status and without a body of the user's.
local function end_with(code)
  SB.make_response("ngx_exit", c_has_said(cx) == 1 and SB.context().status or code, "")
  SB.suspend(SB.wait["end"])
end

local EXITS = CONTENT + P.header_filter + P.certificate + SB.TIMER
own.exit = function(code, ...)
  local number = tonumber(code)
  if not number then
    bad_argument(1, "number expected, got " .. (code == nil and "nil" or type(code)), 2)
  end
  check_phase(EXITS, 3)
  local phase = cx.nginx
  if phase == P.header_filter then
    -- An error breaks the response off. Other codes end the filter, which goes on here to the end of the snippet.
    if number == own.ERROR then error("ngx.exit(ngx.ERROR) in header_filter", 2) end
    return number
  end
  if phase == 0 then return SB.suspend(SB.wait["end"]) end
  if phase == P.certificate then
    if number == own.ERROR then error("ngx.exit(ngx.ERROR)", 2) end
    return SB.suspend(SB.wait["end"])
  end
  if number < 100 then
    if c_has_said(cx) == 1 then return end_with(200) end
    -- In rewrite, the phase ends and the request goes on. In access, Kong has then prepared no upstream.
    if phase == P.rewrite and number ~= own.ERROR then return SB.suspend(SB.wait["end"]) end
    return end_with(500)
  end
  if number > 999 then error("attempt to set status " .. number, 2) end
  end_with(number)
end

local REDIRECTS = {[301] = true, [302] = true, [303] = true, [307] = true, [308] = true}
own.redirect = function(uri, code, ...)
  if type(uri) ~= "string" then
    if type(uri) ~= "number" then bad_argument(1, "string expected, got " .. (uri == nil and "no value" or type(uri)), 2) end
    uri = tostring(uri)
  end
  check_phase(CONTENT, 3)
  code = code or 302
  if not REDIRECTS[code] then
    error("only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, "
      .. "ngx.HTTP_SEE_OTHER, and ngx.HTTP_TEMPORARY_REDIRECT are allowed", 2)
  end
  if c_has_said(cx) == 1 then error("attempt to call ngx.redirect after sending out the headers", 2) end
  local at = uri:find("[%z\1-\31\127]")
  if at then
    error(format('unsafe byte "0x%02x" in redirect uri "%s"', uri:byte(at), SB.escaped(uri)), 2)
  end
  SB.make_response("ngx_exit", code, "", {Location = uri})
  SB.suspend(SB.wait["end"])
end

-- Begins the request anew, with another `ngx.var.uri`. Kong's own named locations cannot be reached.
-- Source: lua-nginx-module, ngx_http_lua_control.c ngx_http_lua_ngx_exec; nginx, ngx_http_parse_unsafe_uri.
own.exec = function(...)
  local count = select("#", ...)
  if count ~= 1 and count ~= 2 then error("expecting one or two arguments, but got " .. count, 2) end
  local uri, args = ...
  if type(uri) == "number" then uri = tostring(uri) end
  if type(uri) ~= "string" then bad_argument(1, "string expected, got " .. (uri == nil and "nil" or type(uri)), 2) end
  check_phase(CONTENT, 3)
  if uri == "" then error("The uri argument is empty", 2) end
  local kind = type(args)
  if kind == "number" then
    args = tostring(args)
  elseif kind == "table" then
    local text, err = SB.encode_args(args)
    if not text then error(err, 2) end
    args = text
  elseif kind ~= "string" and args ~= nil then
    bad_argument(2, "string, number, or table expected, but got " .. kind, 2)
  end
  if c_has_said(cx) == 1 then error("attempt to call ngx.exec after sending out response headers", 2) end
  if uri:byte() == 64 then return end_with(500) end
  local path, query = uri:match("^([^?]*)%??(.*)$")
  path = gsub(path, "%%(%x%x)", function(digits) return char(tonumber(digits, 16)) end)
  if path == "" or path:find("%z") or ("/" .. path .. "/"):find("/../", 1, true) then error("unsafe uri", 2) end
  if args and args ~= "" then query = query == "" and args or query .. "&" .. args end
  if c_redirect(cx, path, #path, query, #query) ~= 1 then error("an internal error", 2) end
  SB.suspend(SB.wait["end"])
end

-- Returns a text with `\xHH` for each control character.
function SB.escaped(text, ...)
  return (gsub(text, "[%z\1-\31\127]", function(c) return format("\\x%02X", c:byte()) end))
end
