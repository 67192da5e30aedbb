-- The table that the files of this crate share, and the functions of Rust as Lua functions.
--
-- Functions that users call have `...` as their last parameter. LuaJIT never makes a function with `...` the root of a
-- trace, so it cannot give one up for ever ("blacklist"), which would keep its callers from being compiled.

local ffi = require "ffi"
ffi.cdef(SB_DECLARATIONS)
local functions = ffi.cast("sb_functions *", SB_FUNCTIONS)
local cx = ffi.cast("sb_cx *", SB_CX)
local constants, null, empty_array = SB_CONSTANTS, SB_NULL, SB_EMPTY_ARRAY
SB_NULL, SB_EMPTY_ARRAY = nil, nil
SB_DECLARATIONS, SB_FUNCTIONS, SB_CX, SB_CONSTANTS = nil, nil, nil, nil

local ffi_string, tonumber, error, type = ffi.string, tonumber, error, type
local c_text, c_item, c_encode = functions.text, functions.item, functions.encode

local SB = {
  functions = functions,
  cx = cx,
  phase = constants.phase,
  wait = constants.wait,
  constants = constants,
  null = null,
  empty_array = empty_array,
}

-- What a table of constants does not have is an error at load.
for _, group in pairs(constants) do
  setmetatable(group, {__index = function(_, name) error("no constant " .. name, 2) end})
end

local function failed(code)
  if code == -1 then error("no request found", 3) end
  error("an internal error", 3)
end
SB.failed = failed

-- Returns a reader of a text: nil if there is none.
function SB.text_reader(name)
  local number = constants.text[name]
  return function(...)
    local code = c_text(cx, number)
    if code == 1 then return ffi_string(cx.ptr, cx.len) end
    if code == 0 then return nil end
    failed(code)
  end
end

-- Returns a reader of a number: nil if there is none.
function SB.number_reader(name)
  local number = constants.text[name]
  return function(...)
    local code = c_text(cx, number)
    if code == 1 then return cx.number end
    if code == 0 then return nil end
    failed(code)
  end
end

-- Returns a reader of a small number that is the result itself.
function SB.code_reader(name)
  local number = constants.text[name]
  return function(...)
    local code = c_text(cx, number)
    if code >= 0 then return code end
    failed(code)
  end
end

-- Returns a function that encodes a text, or returns nil if that is not possible.
function SB.encoder(name)
  local number = constants.encoding[name]
  return function(text, ...)
    local code = c_encode(cx, number, text, #text)
    if code == 1 then return ffi_string(cx.ptr, cx.len) end
    if code == 0 then return nil end
    failed(code)
  end
end

-- Returns the name, the value and the kind of an item of the list that was made last.
function SB.item(at, ...)
  local kind = c_item(cx, at)
  return ffi_string(cx.ptr, cx.len), ffi_string(cx.ptr2, cx.len2), kind
end

-- The phases in which a function may be called: a number of bits, and the text of the error.
-- Source: kong/pdk/private/phases.lua check_phase().
local names = {
  [constants.phase.certificate] = "certificate", [constants.phase.rewrite] = "rewrite",
  [constants.phase.access] = "access", [constants.phase.response] = "response",
  [constants.phase.header_filter] = "header_filter", [constants.phase.body_filter] = "body_filter",
  [constants.phase.log] = "log",
}
SB.phase_names = names

local bit_band = bit.band

-- Returns the bits of phases, and the error without the phase. Names that have no bit are phases of Kong alone.
function SB.phases(list)
  local bits = 0
  for name in list:gmatch("[%w_]+") do
    local number = rawget(constants.phase, name)
    if number then bits = bits + number end
  end
  return bits, list
end

-- Raises Kong's error for a call in a wrong phase. `level` is that of the caller of the PDK's function.
function SB.wrong_phase(list, listed, level)
  local name = names[cx.phase]
  if not name then
    error("no phase in ngx.ctx.KONG_PHASE, (need one of " .. (listed or list) .. ")", level)
  end
  error("function cannot be called in " .. name .. " phase (only in: " .. list .. ")", level)
end

-- Makes a coroutine wait: it goes on when Rust resumes it (`coroutine.lua` sets `SB.yield`).
function SB.suspend(kind)
  cx.wait = kind
  return SB.yield()
end

-- Whether the running phase can wait.
local WAITING = constants.phase.certificate + constants.phase.rewrite + constants.phase.access + constants.phase.response
function SB.can_wait(...)
  local phase = cx.nginx
  return phase == 0 or bit_band(phase, WAITING) ~= 0
end

-- The metatable of `ngx.ctx` has the fields of Kong's core (`ngx_ctx.lua`).
SB.ctx_mt = {}

-- The tables of each request: `ngx.ctx`, `kong.ctx.shared`, `kong.ctx.plugin`.
local contexts, free, last = {}, {}, 0
local c_keep = functions.keep_context

function SB.context(...)
  local number = cx.context
  if number ~= 0 then return contexts[number] end
  number = free[#free]
  if number then
    free[#free] = nil
  else
    last = last + 1
    number = last
  end
  local context = {ctx = setmetatable({}, SB.ctx_mt), shared = {}, plugins = {}}
  contexts[number] = context
  if SB.name_node then SB.name_node() end
  if c_keep(cx, number) ~= 1 then
    -- Outside of a request, the tables live as long as the slice.
    contexts[number] = nil
    free[#free + 1] = number
    cx.context = 0
  end
  return context
end

-- Returns `kong.ctx.shared`, with what plugins in Rust have set since it was last read.
local c_take_shared = functions.take_shared
function SB.shared(...)
  local shared = SB.context().shared
  if cx.shared ~= 0 and c_take_shared(cx) == 1 then
    for name, value in next, SB.json.read(ffi_string(cx.ptr, cx.len)) do
      if value == SB.null then value = nil end
      shared[name] = value
    end
  end
  return shared
end

function SB.forget(number)
  if contexts[number] then
    contexts[number] = nil
    free[#free + 1] = number
  end
end

return SB
