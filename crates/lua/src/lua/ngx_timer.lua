-- `ngx.timer`. Kong replaces OpenResty's timers by lua-resty-timer-ng, whose timers have names.
-- Source: lua-resty-timer-ng, lib/resty/timerng/init.lua.
local SB = ...
local functions, cx, own = SB.functions, SB.cx, SB.ngx
local ffi_string = require("ffi").string
local type, error, unpack, select, tostring = type, error, unpack, select, tostring
local c_start, c_count = functions.timer_start, functions.timer_count

-- The functions of the timers that wait, by number. Numbers are used again, so that the table stays an array.
local timers, last, free, free_count, counter = {}, 0, {}, 0, 0

-- Keeps a function and starts its timer. Returns the name, or nil and an error.
local function start(delay, run)
  local number = free[free_count] or last + 1
  -- First, because the code may be stopped at any moment: then the number is not used any more.
  if number > last then last = number else free_count = free_count - 1 end
  local code = c_start(cx, number, delay)
  if code == 1 then
    timers[number] = run
    counter = counter + 1
    return "unix_timestamp=" .. tostring(own.now()) .. ";counter=" .. counter
  end
  free_count = free_count + 1
  free[free_count] = number
  if code == -3 then return nil, ffi_string(cx.ptr, cx.len) end
  return nil, "process exiting"
end

-- Returns the function of the timer whose number is in `cx.number`, or the one that delivers events if that is 0.
-- `cx.flags` is 1 if the worker ends.
function SB.take_timer()
  local number, premature = cx.number, cx.flags == 1
  if number == 0 then return SB.deliver_event end
  local run = timers[number]
  timers[number] = nil
  if run then
    free_count = free_count + 1
    free[free_count] = number
  end
  if premature then SB.is_exiting = true end
  return function()
    if run then run(premature) end
  end
end

local function check(delay, callback)
  if type(callback) ~= "function" then error("expected `callback` to be a function", 3) end
  if type(delay) ~= "number" then error("expected `delay` to be a number", 3) end
end

own.timer = {}

own.timer.at = function(delay, callback, ...)
  check(delay, callback)
  if delay < 0 then error("expected `delay` to be greater than or equal to 0") end
  local count, args = select("#", ...), {...}
  local name, err = start(delay, function(premature)
    callback(premature, unpack(args, 1, count))
  end)
  return name, err
end

own.timer.every = function(interval, callback, ...)
  check(interval, callback)
  if interval <= 0 then error("expected `interval` to be greater than or equal to 0") end
  local count, args = select("#", ...), {...}
  local run
  run = function(premature)
    -- The next call is planned first, so that an error does not end the timer.
    if not premature then start(interval, run) end
    callback(premature, unpack(args, 1, count))
  end
  local name, err = start(interval, run)
  return name, err
end

own.timer.running_count = function(...) return (c_count(cx, 1)) end
own.timer.pending_count = function(...) return (c_count(cx, 0)) end
