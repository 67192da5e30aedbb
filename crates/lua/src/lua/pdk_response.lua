-- `kong.response`: the response to the client. Source: kong/pdk/response.lua.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local ffi_string = require("ffi").string
local concat, tonumber = table.concat, tonumber
local band, type, error, tostring, next, floor = bit.band, type, error, tostring, next, math.floor
local lower, gsub, sub, find = string.lower, string.gsub, string.sub, string.find
local failed, wrong_phase, json = SB.failed, SB.wrong_phase, SB.json
local c_header, c_set_header, c_set_number, c_exit_header, c_exit =
  functions.header, functions.set_header, functions.set_number, functions.exit_header, functions.exit
local RESPONSE = constants.header.response
local SET, ADD, REMOVE = constants.change.set, constants.change.add, constants.change.remove

local response = {}
kong.response = response

local H, H_LIST = SB.phases("response, header_filter, body_filter, log, error, admin_api")
local W, W_LIST = SB.phases("rewrite, access, balancer, response, header_filter, error, admin_api")
local HEADER_FILTER, BODY_FILTER = constants.phase.header_filter, constants.phase.body_filter

local status, source = SB.number_reader("status"), SB.text_reader("source")

response.get_status = function(...)
  if band(cx.phase, H) == 0 then wrong_phase(H_LIST, nil, 3) end
  return status()
end

response.get_source = function(...)
  if band(cx.phase, H) == 0 then wrong_phase(H_LIST, nil, 3) end
  return source()
end

response.get_header = function(name, ...)
  if band(cx.phase, H) == 0 then wrong_phase(H_LIST, nil, 3) end
  if type(name) ~= "string" then error("header name must be a string", 2) end
  local code = c_header(cx, 1, name, #name)
  if code == 1 then return ffi_string(cx.ptr, cx.len) end
  if code ~= 0 then failed(code) end
  return nil
end

local RESPONSE_HEADERS = constants.list.response_headers
response.get_headers = function(max, ...)
  if band(cx.phase, H) == 0 then wrong_phase(H_LIST, nil, 3) end
  if max == nil then return SB.headers(RESPONSE_HEADERS, 100) end
  if type(max) ~= "number" then error("max_headers must be a number", 2) end
  if max < 1 then error("max_headers must be >= 1", 2) end
  if max > 1000 then error("max_headers must be <= 1000", 2) end
  return SB.headers(RESPONSE_HEADERS, max)
end

-- Raises an error if the name or the value of a header is wrong. Source: kong/pdk/private/checks.lua.
local function check_name(name, level)
  if type(name) ~= "string" then
    error('invalid header name "' .. tostring(name) .. '": got ' .. type(name) .. ", expected string", level)
  end
end

local function check_value(name, value, level)
  local t = type(value)
  if t == "table" then
    for i = 1, #value do
      local vt = type(value[i])
      if vt ~= "string" then
        error('invalid header value in array "' .. name .. '": got ' .. vt .. ", expected string", level)
      end
    end
    return
  end
  if t ~= "string" and t ~= "number" and t ~= "boolean" then
    error('invalid header value for "' .. name .. '": got ' .. t .. ", expected array of string, string, number or boolean", level)
  end
end
SB.check_header_name, SB.check_header_value = check_name, check_value

-- Returns a header's value as text. An empty one is a blank.
local function shown(value)
  if value == "" then return " " end
  return tostring(value)
end

local function sets(name, value, change)
  value = shown(value)
  local code = c_set_header(cx, RESPONSE, change, name, #name, value, #value)
  if code ~= 1 then failed(code) end
end

response.set_status = function(code, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  if type(code) ~= "number" then error("code must be a number", 2) end
  if code < 100 or code > 599 then error("code must be a number between 100 and 599", 2) end
  if c_set_number(cx, constants.set_number.status, code) == -1 then SB.context().status = code end
end

local function sets_all(name, value, change)
  if #name == 17 and lower((gsub(name, "_", "-"))) == "transfer-encoding" then
    kong.log.warn("manually setting Transfer-Encoding. Ignored.")
    return
  end
  if type(value) ~= "table" then return sets(name, value, change) end
  if change == SET then sets(name, "", REMOVE) end
  for i = 1, #value do sets(name, value[i], ADD) end
end

response.set_header = function(name, value, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  check_name(name, 3)
  check_value(name, value, 3)
  sets_all(name, value, SET)
end

response.add_header = function(name, value, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  check_name(name, 3)
  check_value(name, value, 3)
  sets_all(name, value, ADD)
end

response.clear_header = function(name, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  if type(name) ~= "string" then error("header name must be a string", 2) end
  sets(name, "", REMOVE)
end

local function check_headers(headers, level)
  for name, value in next, headers do
    if type(name) ~= "string" then
      error('invalid header name "' .. tostring(name) .. '": got ' .. type(name) .. ", expected string", level)
    end
    local t = type(value)
    if t == "table" then
      for i = 1, #value do
        local vt = type(value[i])
        if vt ~= "string" then
          error('invalid header value in array "' .. name .. '": got ' .. vt .. ", expected string", level)
        end
      end
    elseif t ~= "string" and t ~= "number" and t ~= "boolean" then
      error('invalid header value for "' .. name .. '": got ' .. t .. ", expected string, number, boolean or array of strings", level)
    end
  end
end

SB.check_headers = check_headers

response.set_headers = function(headers, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  if type(headers) ~= "table" then error("headers must be a table", 2) end
  check_headers(headers, 3)
  for name, value in next, headers do sets_all(name, value, SET) end
end

-- Ends the request with the response that was made. Nothing catches this: the coroutine never goes on.
local function finish()
  if SB.can_wait() then SB.suspend(SB.wait["end"]) end
end

-- Adds a header to the response that is being made.
local function adds(change, name, value)
  value = shown(value)
  c_exit_header(cx, 0, change, name, #name, value, #value)
end

-- Makes a response. A body is cut to the length that the headers give it.
local function make(kind, code, body, headers)
  if headers then
    for name, value in next, headers do
      name = gsub(name, "_", "-")
      local known = lower(name)
      if known == "content-length" then
        local length = tonumber(value)
        if length and length >= 0 and length < #body then body = sub(body, 1, length) end
      elseif known ~= "transfer-encoding" then
        if type(value) == "table" then
          for i = 1, #value do adds(ADD, name, value[i]) end
        else
          adds(SET, name, value)
        end
      end
    end
  end
  local number = floor(code) + constants.exit[kind] * 65536
  if c_exit(cx, number, body, #body) ~= 1 then error("an internal error", 3) end
end
SB.make_response, SB.finish = make, finish

response.exit = function(code, body, headers, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  if type(code) ~= "number" then error("code must be a number", 2) end
  if code < 100 or code > 599 then error("code must be a number between 100 and 599", 2) end
  local t = type(body)
  if body ~= nil and t ~= "string" and t ~= "table" then error("body must be a nil, string or table", 2) end
  if headers ~= nil then
    if type(headers) ~= "table" then error("headers must be a nil or table", 2) end
    check_headers(headers, 3)
  end
  if t == "table" then
    local text, err = json.write(body)
    if text then
      make("exit_json", code, text, headers)
    else
      -- Kong fails when it sends the body, and nginx answers with its own page.
      kong.log.err("body encoding failed while flushing response: ", err)
      make("ngx_exit", 500, "")
    end
  elseif body or cx.phase == HEADER_FILTER then
    make("exit", code, body or "", headers)
  else
    make("exit_page", code, "", headers)
  end
  finish()
end

-- The types of Kong's error bodies.
local error_types = {
  ["application/json"] = true, ["application/xml"] = true, ["text/html"] = true, ["text/plain"] = true,
  ["application/grpc"] = true,
}

-- Raises an error if the headers have a content type for which there is no error body.
local function check_error_type(headers, level)
  local own = headers and (headers["Content-Type"] or headers["content-type"])
  if type(own) ~= "string" then return end
  local semicolon = find(own, ";", 1, true)
  if not error_types[lower(semicolon and sub(own, 1, semicolon - 1) or own)] then
    error("no error body has the content type " .. own, level)
  end
end

response.error = function(code, message, headers, ...)
  if band(cx.phase, W) == 0 then wrong_phase(W_LIST, nil, 3) end
  if type(code) ~= "number" then error("code must be a number", 2) end
  if code < 400 or code > 599 then error("code must be a number between 400 and 599", 2) end
  local t = type(message)
  if message ~= nil and t ~= "string" and t ~= "table" then error("message must be a nil, a string or a table", 2) end
  if headers ~= nil then
    if type(headers) ~= "table" then error("headers must be a nil or table", 2) end
    check_headers(headers, 3)
  end
  if t == "table" then
    local text, err = json.write(message)
    if not text then error("could not JSON encode the error message: " .. err, 2) end
    message = text
  end
  check_error_type(headers, 3)
  if message then
    make("error", code, message, headers)
  else
    make("status_error", code, "", headers)
  end
  finish()
end

local BODY_LIST = "body_filter"

-- Collects the pieces of the body. With the last one, it returns the body and sends it on. Each plugin collects what those
-- before it have sent on.
response.get_raw_body = function(...)
  if cx.phase ~= BODY_FILTER then wrong_phase(BODY_LIST, nil, 3) end
  local context, arg = SB.context(), ngx.arg
  local chunk, is_last = arg[1] or "", arg[2]
  local bodies = context.bodies
  if not bodies then
    bodies = {}
    context.bodies = bodies
  end
  local pieces = bodies[cx.plugin]
  if not pieces then
    pieces = {}
    bodies[cx.plugin] = pieces
  end
  pieces[#pieces + 1] = chunk
  if is_last then
    bodies[cx.plugin] = nil
    local body = concat(pieces)
    arg[1] = body
    return body
  end
  arg[1] = nil
  return nil
end

response.set_raw_body = function(body, ...)
  if cx.phase ~= BODY_FILTER then wrong_phase(BODY_LIST, nil, 3) end
  if type(body) ~= "string" then error("body must be a string", 2) end
  -- An empty piece would be no piece to nginx, so Kong sends a line break.
  ngx.arg[1] = body == "" and "\n" or body
  ngx.arg[2] = true
end
