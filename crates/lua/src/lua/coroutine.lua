-- Coroutines through which a wait passes. A wait is a yield of WAIT, which only this file knows: `resume` passes it on to
-- the scheduler and its answer back. What the user yields stops at the user's `resume`, as in OpenResty.
local SB = ...
local co = coroutine
local create, running = co.create, co.running
local native_resume, native_yield, native_status = co.resume, co.yield, co.status
local setmetatable, error = setmetatable, error
local cx = SB.cx
local WAIT = {}
-- Coroutines within which something waits, also those of handlers. Nobody may resume them: another handler of this VM could
-- have them too, and would go on with its own request in them.
local waiting = setmetatable({}, {__mode = "k"})

-- Maximum number of coroutines within each other. Each takes some of the thread's stack.
local MAX_LEVEL = 190

-- Yields a wait from the running coroutine.
local function gone_on(c, ...)
  waiting[c] = nil
  return ...
end
local function wait(...)
  local c = running()
  waiting[c] = true
  return gone_on(c, native_yield(WAIT, ...))
end

local pass
local function answered(c, ...)
  cx.level = cx.level + 1
  return pass(c, native_resume(c, ...))
end
pass = function(c, ok, first, ...)
  cx.level = cx.level - 1
  if first == WAIT and ok then return answered(c, wait(...)) end
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
  return wait()
end
