local SB = ...
local functions, cx = SB.functions, SB.cx
local tostring, select, concat = tostring, select, table.concat
local c_log = functions.log

-- Levels of nginx.
local levels = {emerg = 1, alert = 2, crit = 3, err = 4, warn = 5, notice = 6, info = 7, debug = 8}

local function writer(level)
  return function(...)
    local t = {}
    for i = 1, select("#", ...) do t[i] = tostring((select(i, ...))) end
    local text = concat(t)
    c_log(cx, level, text, #text)
  end
end
local log = {}
for name, level in pairs(levels) do log[name] = writer(level) end
local notice = writer(6)
kong.log = setmetatable(log, {__call = function(_, ...) return notice(...) end})
