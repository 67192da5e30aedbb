-- `kong.log`: the error log, and the record of the request for log plugins. Source: kong/pdk/log.lua.
local SB = ...
local functions, cx = SB.functions, SB.cx
local ffi_string = require("ffi").string
local tostring, select, concat, type, error, next, setmetatable, pairs =
  tostring, select, table.concat, type, error, next, setmetatable, pairs
local band, gsub, rep, sort = bit.band, string.gsub, string.rep, table.sort
local getinfo, traceback = debug.getinfo, debug.traceback
local wrong_phase, failed, json = SB.wrong_phase, SB.failed, SB.json
local c_log, c_log_field, c_log_record = functions.log, functions.log_field, functions.log_record

-- Levels of nginx.
local levels = {emerg = 1, alert = 2, crit = 3, err = 4, warn = 5, notice = 6, info = 7, debug = 8}

-- Returns the message in the format that `set_format` or `new` has set. The line is that of the caller at this level.
local function formatted(self, message, level)
  local info = getinfo(level, "Sln")
  local values = {
    ["%file_src"] = info and info.short_src or "?",
    ["%line_src"] = info and tostring(info.currentline) or "?",
    ["%func_name"] = info and info.name or "?",
    ["%namespace"] = self.namespace or "",
    ["%message"] = message,
  }
  return (gsub(self.format, "%%[%a_]+", values))
end

local function writer(log, settings, level)
  return function(...)
    if select("#", ...) == 0 then error("bad argument #1 to 'select' (index out of range)") end
    local t = {}
    for i = 1, select("#", ...) do t[i] = tostring((select(i, ...))) end
    local text = concat(t)
    if settings.format then
      text = formatted(settings, text, 3)
    elseif settings.namespace then
      text = "[" .. settings.namespace .. "] " .. text
    end
    local info = getinfo(2, "l")
    c_log(cx, level, info and info.currentline or 0, text, #text)
  end
end

-- Maximum depth, and number of values, that `inspect` shows.
local MAX_DEPTH, MAX_VALUES = 20, 10000

local function show(value, out, depth, seen)
  local t = type(value)
  if t == "string" then
    out[#out + 1] = string.format("%q", value)
  elseif t ~= "table" then
    out[#out + 1] = tostring(value)
  elseif seen[value] or depth > MAX_DEPTH or #out > MAX_VALUES then
    out[#out + 1] = "{...}"
  else
    seen[value] = true
    local keys = {}
    for key in next, value do keys[#keys + 1] = key end
    sort(keys, function(a, b)
      local same = type(a) == type(b)
      if same and (type(a) == "number" or type(a) == "string") then return a < b end
      if same then return tostring(a) < tostring(b) end
      return type(a) < type(b)
    end)
    out[#out + 1] = "{"
    for i = 1, #keys do
      local key = keys[i]
      out[#out + 1] = (i > 1 and ",\n" or "\n") .. rep("  ", depth)
      out[#out + 1] = type(key) == "string" and key or "[" .. tostring(key) .. "]"
      out[#out + 1] = " = "
      show(value[key], out, depth + 1, seen)
    end
    out[#out + 1] = #keys > 0 and "\n" .. rep("  ", depth - 1) .. "}" or "}"
    seen[value] = nil
  end
end

local function inspector(log)
  local is_on = true
  return setmetatable({
    on = function(...) is_on = true end,
    off = function(...) is_on = false end,
  }, {__call = function(_, ...)
    if not is_on then return end
    local out = {}
    for i = 1, select("#", ...) do
      if i > 1 then out[#out + 1] = " " end
      show((select(i, ...)), out, 1, {})
    end
    local text = concat(out)
    c_log(cx, levels.debug, 0, text, #text)
  end})
end

local S, S_LIST = SB.phases("rewrite, access, response, header_filter, body_filter, log")
local MODES = {set = 0, add = 1, replace = 2}
local INVALID = "value must be nil, a number, string, boolean or a non-self-referencial table containing numbers, "
  .. "string and booleans"

-- Whether a log record can hold a value. Kong refuses others only when it makes the record.
local function is_loggable(value, depth)
  local t = type(value)
  if t == "number" or t == "string" or t == "boolean" then return true end
  if t ~= "table" or depth > MAX_DEPTH then return false end
  for key, item in next, value do
    if type(key) ~= "string" and type(key) ~= "number" then return false end
    if not is_loggable(item, depth + 1) then return false end
  end
  return true
end

local function set_serialize_value(key, value, options, ...)
  if band(cx.phase, S) == 0 then wrong_phase(S_LIST, nil, 3) end
  if type(key) ~= "string" then error("key must be a string", 2) end
  local mode = MODES[options and options.mode or "set"]
  if not mode then error("mode must be 'set', 'add' or 'replace'", 2) end
  local text, kind = "", 0
  if value ~= nil then
    text, kind = is_loggable(value, 1) and json.write(value), 1
    if not text then
      SB.context().unloggable = true
      return
    end
  end
  local code = c_log_field(cx, mode, kind, key, #key, text, #text)
  if code < 0 then failed(code) end
end

local L, L_LIST = SB.phases("log")
local function serialize(options, ...)
  if band(cx.phase, L) == 0 then wrong_phase(L_LIST, nil, 3) end
  if SB.context().unloggable then error(INVALID, 2) end
  local code = c_log_record(cx)
  if code == -3 then error(ffi_string(cx.ptr, cx.len), 2) end
  if code ~= 1 then failed(code) end
  return (json.read(ffi_string(cx.ptr, cx.len)))
end

local log_mt = {__index = {}, __call = function(self, ...) self.notice(...) end}

-- Logs a message in pieces. The last may be a table: since when something is deprecated, and when it goes.
local deprecation = setmetatable({write = function(...)
  local t = {}
  for i = 1, select("#", ...) do t[i] = tostring((select(i, ...))) end
  local text = concat(t)
  c_log(cx, levels.warn, 0, text, #text)
end}, {__call = function(self, ...)
  local count = select("#", ...)
  local about = select(count, ...)
  local text
  if type(about) == "table" then
    text = concat({...}, nil, 1, count - 1)
    local after, removal = about.after, about.removal
    if after and removal then
      text = text .. " (deprecated after " .. after .. ", scheduled for removal in " .. removal .. ")"
    elseif after then
      text = text .. " (deprecated after " .. after .. ")"
    elseif removal then
      text = text .. " (scheduled for removal in " .. removal .. ")"
    end
    if about.trace then text = text .. " " .. traceback("", 2) end
  else
    text = concat({...}, nil, 1, count)
  end
  self.write(text)
end})

local function new(namespace, format)
  local settings = {namespace = namespace, format = format}
  local log = {}
  for name, level in pairs(levels) do log[name] = writer(log, settings, level) end
  log.inspect = inspector(log)
  log.set_serialize_value, log.serialize = set_serialize_value, serialize
  log.deprecation = deprecation
  log.set_format = function(wanted, ...)
    if type(wanted) ~= "string" then error("format must be a string", 2) end
    if wanted == "" then error("format cannot be an empty string", 2) end
    settings.format = wanted
  end
  return setmetatable(log, log_mt)
end

log_mt.__index.new = function(name, format, ...)
  if type(name) ~= "string" then error("namespace must be a string", 2) end
  if name == "" then error("namespace cannot be an empty string", 2) end
  if format ~= nil then
    if type(format) ~= "string" then error("format must be a string if specified", 2) end
    if format == "" then error("format cannot be an empty string if specified", 2) end
  end
  return (new(name, format))
end

kong.log = new()
