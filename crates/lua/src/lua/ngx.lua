-- `ngx`: constants, tables of the request, the phase, the worker, waiting and logs.
-- Source: lua-nginx-module and lua-resty-core, lib/resty/core/{base,ctx,phase,worker}.lua.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local ffi_string = require("ffi").string
local setmetatable, type, error, tostring, tonumber, floor = setmetatable, type, error, tostring, tonumber, math.floor
local select, rawset, getmetatable, concat, gsub = select, rawset, getmetatable, table.concat, string.gsub
local band, getinfo = bit.band, debug.getinfo
local c_text, c_set_text, c_set_number, c_sleep, c_log =
  functions.text, functions.set_text, functions.set_number, functions.sleep, functions.log

local own = {
  null = SB.null,
  OK = 0, ERROR = -1, AGAIN = -2, DONE = -4, DECLINED = -5,
  STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5, NOTICE = 6, INFO = 7, DEBUG = 8,
  HTTP_CONTINUE = 100, HTTP_SWITCHING_PROTOCOLS = 101, HTTP_OK = 200, HTTP_CREATED = 201, HTTP_ACCEPTED = 202,
  HTTP_NO_CONTENT = 204, HTTP_PARTIAL_CONTENT = 206, HTTP_SPECIAL_RESPONSE = 300, HTTP_MOVED_PERMANENTLY = 301,
  HTTP_MOVED_TEMPORARILY = 302, HTTP_SEE_OTHER = 303, HTTP_NOT_MODIFIED = 304, HTTP_TEMPORARY_REDIRECT = 307,
  HTTP_PERMANENT_REDIRECT = 308, HTTP_BAD_REQUEST = 400, HTTP_UNAUTHORIZED = 401, HTTP_PAYMENT_REQUIRED = 402,
  HTTP_FORBIDDEN = 403, HTTP_NOT_FOUND = 404, HTTP_NOT_ALLOWED = 405, HTTP_NOT_ACCEPTABLE = 406,
  HTTP_REQUEST_TIMEOUT = 408, HTTP_CONFLICT = 409, HTTP_GONE = 410, HTTP_UPGRADE_REQUIRED = 426,
  HTTP_TOO_MANY_REQUESTS = 429, HTTP_CLOSE = 444, HTTP_ILLEGAL = 451, HTTP_INTERNAL_SERVER_ERROR = 500,
  HTTP_METHOD_NOT_IMPLEMENTED = 501, HTTP_NOT_IMPLEMENTED = 501, HTTP_BAD_GATEWAY = 502,
  HTTP_SERVICE_UNAVAILABLE = 503, HTTP_GATEWAY_TIMEOUT = 504, HTTP_VERSION_NOT_SUPPORTED = 505,
  HTTP_INSUFFICIENT_STORAGE = 507,
  HTTP_GET = 2, HTTP_HEAD = 4, HTTP_POST = 8, HTTP_PUT = 16, HTTP_DELETE = 32, HTTP_MKCOL = 64, HTTP_COPY = 128,
  HTTP_MOVE = 256, HTTP_OPTIONS = 512, HTTP_PROPFIND = 1024, HTTP_PROPPATCH = 2048, HTTP_LOCK = 4096,
  HTTP_UNLOCK = 8192, HTTP_PATCH = 16384, HTTP_TRACE = 32768,
  is_subrequest = false,
}
-- Fields that are computed, by name: functions that read and write them. Other files add theirs.
local getters, setters = {}, {}
SB.ngx, SB.ngx_getters, SB.ngx_setters = own, getters, setters

getters.ctx = function(...) return SB.context().ctx end
setters.ctx = function(value, ...) SB.context().ctx = value end

ngx = setmetatable(own, {
  __index = function(_, name)
    local get = getters[name]
    if get then return (get()) end
  end,
  __newindex = function(t, name, value)
    local set = setters[name]
    if set then
      set(value)
      return
    end
    rawset(t, name, value)
  end,
})

-- The phases as bits, and their names in the errors of lua-nginx-module. A timer has none in Rust.
local P = constants.phase
local TIMER = 128
local names = {
  [P.certificate] = "ssl_certificate_by_lua*", [P.rewrite] = "rewrite_by_lua*", [P.access] = "access_by_lua*",
  [P.response] = "content_by_lua*", [P.header_filter] = "header_filter_by_lua*",
  [P.body_filter] = "body_filter_by_lua*", [P.log] = "log_by_lua*", [TIMER] = "ngx.timer",
}
local CONTENT = P.rewrite + P.access + P.response
local REQUEST = CONTENT + P.header_filter + P.body_filter + P.log
SB.CONTENT, SB.REQUEST, SB.TIMER = CONTENT, REQUEST, TIMER

-- Raises an error if the running phase is none of these. `level` is that of the user's code.
function SB.check_phase(bits, level, ...)
  local phase = cx.nginx
  if phase == 0 then phase = TIMER end
  if band(phase, bits) == 0 then error("API disabled in the context of " .. names[phase], level) end
end

-- Raises an error if there is no request.
function SB.check_request(level, ...)
  if band(cx.nginx, REQUEST) == 0 then error("API disabled in the current context", level) end
end

-- Raises LuaJIT's error for an argument. `level` is that of the function that has it.
function SB.bad_argument(number, text, level, ...)
  local info = getinfo(level, "n")
  local name = info and info.name or "?"
  error("bad argument #" .. number .. " to '" .. name .. "' (" .. text .. ")", level + 1)
end
local bad_argument = SB.bad_argument

-- `ngx.arg` in body_filter: the piece, and whether it is the last.
local CHUNK, IS_LAST = constants.text.chunk, constants.text.is_last
local SET_CHUNK, END_CHUNKS = constants.set_text.chunk, constants.set_number.end_chunks

-- Collects the texts of a table of texts and numbers. Returns the type of what is none.
local function flatten(t, out, depth)
  for i = 1, #t do
    local value = t[i]
    local kind = type(value)
    if kind == "table" then
      if depth > 100 then return kind end
      local bad = flatten(value, out, depth + 1)
      if bad then return bad end
    elseif kind == "string" or kind == "number" then
      out[#out + 1] = value
    else
      return kind
    end
  end
end

own.arg = setmetatable({}, {
  __index = function(_, at)
    if band(cx.phase, P.body_filter) == 0 then return nil end
    if at == 1 then
      if c_text(cx, CHUNK) == 1 then return ffi_string(cx.ptr, cx.len) end
    elseif at == 2 then
      return c_text(cx, IS_LAST) == 1
    end
    return nil
  end,
  __newindex = function(_, at, value)
    if band(cx.phase, P.body_filter) == 0 then error("API disabled in the current context", 2) end
    if at == 1 then
      local text, kind = "", type(value)
      if kind == "string" or kind == "number" then
        text = tostring(value)
      elseif kind == "table" then
        local out = {}
        local bad = flatten(value, out, 1)
        if bad then error("bad chunk data type: " .. bad, 2) end
        text = concat(out)
      elseif value ~= nil then
        error("bad chunk data type: " .. kind, 2)
      end
      c_set_text(cx, SET_CHUNK, text, #text)
    elseif at == 2 then
      c_set_number(cx, END_CHUNKS, value and 1 or 0)
    else
      error("bad index: " .. tostring(at), 2)
    end
  end,
})

own.sleep = function(seconds, ...)
  local number = tonumber(seconds)
  if not number then
    bad_argument(1, "number expected, got " .. type(seconds), 2)
  end
  if number < 0 then
    error('invalid sleep duration "' .. tostring(floor(number * 1000)) .. '"', 2)
  end
  SB.check_phase(CONTENT + P.certificate + TIMER, 3)
  if c_sleep(cx, number) == 1 then SB.suspend(SB.wait.future) end
end

own.get_phase = function(...)
  local name = SB.phase_names[cx.nginx]
  if name == "certificate" then return "ssl_cert" end
  if name == "response" then return "content" end
  return name or "timer"
end

-- Returns the texts of arguments joined. Source: ngx_http_lua_log.c log_wrapper().
local function joined(first, ...)
  local out = {}
  for i = first, select("#", ...) do
    local value = select(i, ...)
    local kind = type(value)
    if kind == "table" then
      local mt = getmetatable(value)
      if type(mt) ~= "table" or not mt.__tostring then
        bad_argument(i, "expected table to have __tostring metamethod", 3)
      end
    elseif kind ~= "string" and kind ~= "number" and kind ~= "nil" and kind ~= "boolean" and value ~= SB.null then
      bad_argument(i, "string, number, boolean, or nil expected, got " .. kind, 3)
    end
    out[#out + 1] = value == SB.null and "null" or tostring(value)
  end
  return concat(out)
end

own.log = function(level, ...)
  local number = tonumber(level)
  if not number then
    bad_argument(1, "number expected, got " .. (level == nil and "no value" or type(level)), 2)
  end
  if number < 0 or number > 8 then bad_argument(1, "bad log level: " .. number, 2) end
  local text = joined(1, ...)
  c_log(cx, number, 0, text, #text)
end

-- OpenResty's `print` writes to the log.
print = function(...)
  local text = joined(1, ...)
  c_log(cx, own.NOTICE, 0, text, #text)
end

own.on_abort = function(...)
  SB.check_phase(CONTENT, 3)
  return nil, "lua_check_client_abort is off"
end

own.worker = {
  id = SB.number_reader("worker_id"),
  count = SB.number_reader("worker_count"),
  pid = SB.number_reader("worker_pid"),
  pids = function(...) return {own.worker.pid()} end,
  exiting = function(...) return SB.is_exiting == true end,
}

own.config = {
  subsystem = "http",
  debug = false,
  -- nginx ends the prefix with a slash.
  prefix = function(...) return (gsub(SB.setting("prefix") or "/usr/local/kong", "/*$", "/", 1)) end,
  nginx_version = 1025003,
  ngx_lua_version = 10026,
  nginx_configure = function(...) return "" end,
}

-- What needs a library of the next round: only the errors of the phases that forbid it.
local function absent(name, bits)
  return function(...)
    SB.check_phase(bits, 3)
    error(name .. " is not supported", 2)
  end
end
local THREADS = CONTENT + TIMER + P.certificate
own.thread = {}
for _, name in ipairs{"spawn", "wait", "kill"} do own.thread[name] = absent("ngx.thread." .. name, THREADS) end
own.location = {}
for _, name in ipairs{"capture", "capture_multi"} do
  own.location[name] = absent("ngx.location." .. name, CONTENT)
end
