-- Bodies of requests and responses: reading a form, JSON or multipart, and writing one. Source: kong/pdk/request.lua
-- get_raw_body() and get_body(), kong/pdk/service/request.lua set_body().
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local band, type, error, tostring, next = bit.band, type, error, tostring, next
local sub, find, lower, format, concat, sort =
  string.sub, string.find, string.lower, string.format, table.concat, table.sort
local json, item, wrong_phase, request = SB.json, SB.item, SB.wrong_phase, kong.request
local c_multipart = functions.multipart

local FORM, JSON, MULTIPART = "application/x-www-form-urlencoded", "application/json", "multipart/form-data"
SB.mime = {form = FORM, json = JSON, multipart = MULTIPART}

-- Adds a value to those with the same name.
local function collect(t, name, value)
  local known = t[name]
  if known == nil then
    t[name] = value
  elseif type(known) == "table" then
    known[#known + 1] = value
  else
    t[name] = {known, value}
  end
end

-- Reads the parts of a multipart body.
local function read_multipart(content_type, text)
  local t = {}
  -- Kong finds the boundary only by a name in lower case.
  if not find(content_type, "boundary=", 1, true) then return t end
  for i = 0, c_multipart(cx, content_type, #content_type, text, #text) - 1 do
    local name, value = item(i)
    collect(t, name, value)
  end
  return t
end

local function starts(text, prefix)
  return sub(text, 1, #prefix) == prefix
end

-- Returns the body as a table, or nil and an error, and its type. `read` returns the text of the body.
function SB.parse_body(content_type, max_args, read, argument)
  local mime = lower(content_type)
  if starts(mime, FORM) then
    if max_args ~= nil then
      if type(max_args) ~= "number" then error("max_args must be a number", 3) end
      if max_args < 1 then error("max_args must be >= 1", 3) end
      if max_args > 1000 then error("max_args must be <= 1000", 3) end
    end
    local text, err = read(argument)
    if not text then return nil, err, FORM end
    return SB.args(text, max_args or 100), nil, FORM
  end
  if starts(mime, JSON) then
    local text, err = read(argument)
    if not text then return nil, err, JSON end
    local value = json.read(text, true)
    if type(value) ~= "table" then return nil, "invalid json body", JSON end
    return value, nil, JSON
  end
  if starts(mime, MULTIPART) then
    local text, err = read(argument)
    if not text then return nil, err, MULTIPART end
    return read_multipart(content_type, text), nil, MULTIPART
  end
  local semicolon = find(mime, ";", 1, true)
  if semicolon then mime = sub(mime, 1, semicolon - 1) end
  return nil, "unsupported content type '" .. content_type .. "'", mime
end

local text_of_body, body_state = SB.text_reader("body"), SB.code_reader("body_state")
local TOO_LARGE = "request body did not fit into client body buffer, consider raising 'client_body_buffer_size'"
local ON_DISK, TOO_LARGE_FOR_MEMORY = 4, 2

-- Returns the body, which is read if it was not yet. Bodies are never on disk here, but Kong returns one that does not
-- fit into nginx's buffer only to a caller that allows a size. One that is too large for the memory cannot be had at all.
local function read_body(max_file_size)
  local state = body_state()
  if state == 0 then
    SB.suspend(SB.wait.body)
    state = body_state()
  end
  if state == TOO_LARGE_FOR_MEMORY then return nil, TOO_LARGE end
  local text = text_of_body() or ""
  if state ~= ON_DISK then return text end
  if not max_file_size or max_file_size < 0 then return nil, TOO_LARGE end
  if max_file_size > 0 and #text > max_file_size then
    return nil, format("request body file too big: %d > %d", #text, max_file_size)
  end
  return text
end

-- Returns the body of a form. Kong reads no form from disk, whatever size is allowed.
local function read_form()
  local text = read_body()
  if text then return text end
  return nil, "request body in temp file not supported"
end

local BODY, BODY_LIST = SB.phases("rewrite, access, response, error, admin_api")

request.get_raw_body = function(max_file_size, ...)
  if band(cx.phase, BODY) == 0 then wrong_phase(BODY_LIST, nil, 3) end
  local text, err = read_body(max_file_size)
  if text then return text end
  return nil, err
end

request.get_body = function(mimetype, max_args, max_file_size, ...)
  if band(cx.phase, BODY) == 0 then wrong_phase(BODY_LIST, nil, 3) end
  local content_type = mimetype or request.get_header("Content-Type")
  if content_type == nil then return nil, "missing content type" end
  content_type = tostring(content_type)
  local is_form = starts(lower(content_type), FORM)
  local body, err, mime = SB.parse_body(content_type, max_args, is_form and read_form or read_body, max_file_size)
  return body, err, mime
end

local escape = SB.encoder("escape_uri")

-- Returns the text of one argument.
local function encode_arg(name, value, level)
  local t = type(value)
  if t == "string" or t == "number" then return escape(name) .. "=" .. escape(tostring(value)) end
  if value == true then return escape(name) end
  if value == false then return nil end
  error("attempt to use " .. t .. " as query arg value", level)
end

-- Returns the arguments as a text, sorted by their own texts as Kong does.
function SB.encode_form(args, level)
  local texts = {}
  for name, value in next, args do
    if type(name) ~= "string" then error("arg keys must be strings", level) end
    if type(value) == "table" then
      local several = {}
      for i = 1, #value do several[#several + 1] = encode_arg(name, value[i], level + 1) end
      texts[#texts + 1] = concat(several, "&")
    else
      texts[#texts + 1] = encode_arg(name, value, level + 1) or ""
    end
  end
  sort(texts)
  return concat(texts, "&")
end

-- Returns the parts as a text, and the boundary between them. `put` returns the text of a value.
function SB.encode_multipart(args, boundary, put, level)
  local names, values = {}, {}
  for name, value in next, args do
    if type(name) ~= "string" then
      error('invalid key "' .. tostring(name) .. '": got ' .. type(name) .. ", expected string", level)
    end
    local t = type(value)
    if t ~= "string" and t ~= "number" and t ~= "boolean" then
      error('invalid value "' .. name .. '": got ' .. t .. ", expected string, number or boolean", level)
    end
    names[#names + 1] = name
    values[name] = put(value)
  end
  sort(names)
  local function collides()
    for i = 1, #names do
      if find(values[names[i]], boundary, 1, true) then return true end
    end
    return false
  end
  while boundary == nil or collides() do
    boundary = tostring(math.random(10000000, 99999999)) .. tostring(math.random(10000000, 99999999))
  end
  local out = {}
  for i = 1, #names do
    out[#out + 1] = "--" .. boundary .. '\r\nContent-Disposition: form-data; name="' .. names[i] .. '"\r\n\r\n'
      .. values[names[i]] .. "\r\n"
  end
  out[#out + 1] = "--" .. boundary .. "--\r\n"
  return concat(out), boundary
end
