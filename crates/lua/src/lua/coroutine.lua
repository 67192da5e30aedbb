-- Coroutines through which a wait passes. A wait is a yield of WAIT, which only this file knows: `resume` passes it on to
-- the scheduler and its answer back. What the user yields stops at the user's `resume`, as in OpenResty.
local SB = ...
local co = coroutine
local create, native_resume, native_yield, native_status = co.create, co.resume, co.yield, co.status
local setmetatable, error = setmetatable, error
local cx = SB.cx
local WAIT = {}
-- Coroutines within which something waits. Nobody may resume them: another handler of this VM could have them too.
local waiting = setmetatable({}, {__mode = "k"})

-- Maximum number of coroutines within each other. Each takes some of the thread's stack.
local MAX_LEVEL = 190

local pass
local function answered(c, ...)
  waiting[c] = nil
  cx.level = cx.level + 1
  return pass(c, native_resume(c, ...))
end
pass = function(c, ok, first, ...)
  cx.level = cx.level - 1
  if first == WAIT and ok then
    waiting[c] = true
    return answered(c, native_yield(WAIT, ...))
  end
  return ok, first, ...
end

local function resume(c, ...)
  if waiting[c] then
    return false, "cannot resume non-suspended coroutine"
  end
  if cx.level >= MAX_LEVEL then
    return false, "C stack overflow"
  end
  cx.level = cx.level + 1
  return pass(c, native_resume(c, ...))
end

local function unwrap(ok, first, ...)
  if ok then return first, ... end
  error(first, 0)
end

co.resume = resume
co.wrap = function(f)
  local c = create(f)
  return function(...)
    -- OpenResty's function returns this error, in contrast to all others.
    if native_status(c) == "dead" then return false, "cannot resume dead coroutine" end
    return unwrap(resume(c, ...))
  end
end
co.status = function(c)
  if waiting[c] then return "normal" end
  return native_status(c)
end
co.isyieldable = nil

function SB.yield()
  return native_yield(WAIT)
end
