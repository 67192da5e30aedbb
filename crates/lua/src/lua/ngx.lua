-- `ngx`: what snippets use of OpenResty's API.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local ffi_string = require("ffi").string
local setmetatable, type, error, tostring = setmetatable, type, error, tostring
local c_text, c_set_text, c_set_number, c_sleep =
  functions.text, functions.set_text, functions.set_number, functions.sleep

local own = {
  null = SB.null,
  OK = 0, ERROR = -1, AGAIN = -2, DONE = -4, DECLINED = -5,
  STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5, NOTICE = 6, INFO = 7, DEBUG = 8,
  is_subrequest = false,
}
ngx = setmetatable(own, {
  __index = function(_, name)
    if name == "ctx" then return SB.context().ctx end
  end,
  __newindex = function(t, name, value)
    if name == "ctx" then
      SB.context().ctx = value
      return
    end
    rawset(t, name, value)
  end,
})

-- `ngx.arg` in body_filter: the piece, and whether it is the last.
local CHUNK, IS_LAST = constants.text.chunk, constants.text.is_last
local SET_CHUNK, END_CHUNKS = constants.set_text.chunk, constants.set_number.end_chunks
own.arg = setmetatable({}, {
  __index = function(_, at)
    if at == 1 then
      if c_text(cx, CHUNK) == 1 then return ffi_string(cx.ptr, cx.len) end
    elseif at == 2 then
      return c_text(cx, IS_LAST) == 1
    end
    return nil
  end,
  __newindex = function(_, at, value)
    if at == 1 then
      local text = value == nil and "" or tostring(value)
      c_set_text(cx, SET_CHUNK, text, #text)
    elseif at == 2 then
      c_set_number(cx, END_CHUNKS, value and 1 or 0)
    end
  end,
})

own.sleep = function(seconds, ...)
  if type(seconds) ~= "number" then error("bad argument #1 to 'sleep' (number expected)", 2) end
  if not SB.can_wait() then error("API disabled in the current context", 2) end
  if c_sleep(cx, seconds) == 1 then SB.suspend(SB.wait.future) end
end

local now = SB.number_reader("now")
own.now = function(...) return math.floor(now() * 1000) / 1000 end
own.time = function(...) return math.floor(now()) end

own.get_phase = function(...)
  local name = SB.phase_names[cx.phase]
  if name == "certificate" then return "ssl_cert" end
  return name or "timer"
end
