-- Library functions in C that can run long are replaced by ones that look at the mark of the watchdog.
local SB = ...
local c_find, c_stopped, cx = SB.functions.find, SB.functions.stopped, SB.cx
local sub, type, tostring, error, select, unpack = string.sub, type, tostring, error, select, unpack
local concat, byte = table.concat, string.byte
local texts = {
  "malformed pattern (ends with '%')", "malformed pattern (missing ']')", "too many captures", "invalid pattern capture",
  "unbalanced pattern", "missing '[' after '%f' in pattern", "pattern too complex", "invalid capture index", "unfinished capture",
}

-- A position was stopped: the hook is set, so the next instruction raises; the error is for a late signal.
local function fail(code)
  if code == -2 then error("stopped: it ran for too long", 0) end
  error(texts[-9 - code] or "an internal error", 3)
end

local function text(v, i, name)
  local t = type(v)
  if t == "string" then return v end
  if t == "number" then return tostring(v) end
  error("bad argument #" .. i .. " to '" .. name .. "' (string expected, got " .. (t == "nil" and "no value" or t) .. ")", 3)
end

local function capture(s, i)
  local c = cx.captures[i]
  if c.len == -1 then return c.start + 1 end
  return sub(s, c.start + 1, c.start + c.len)
end

local function captures(s, n, i)
  if i == n then return end
  return capture(s, i), captures(s, n, i + 1)
end

local function from(s, init)
  init = init or 1
  if init < 0 then init = #s + init + 1 end
  if init < 1 then return 0 end
  return init - 1
end

function string.find(s, p, init, plain)
  s, p = text(s, 1, "find"), text(p, 2, "find")
  local at = from(s, init)
  if at > #s then return nil end
  local n = c_find(cx, s, #s, p, #p, at, plain and 1 or 0)
  if n == 0 then return cx.start + 1, tonumber(cx["end"]) end
  if n > 0 then return cx.start + 1, tonumber(cx["end"]), captures(s, n, 0) end
  if n == -1 then return nil end
  fail(n)
end

function string.match(s, p, init)
  s, p = text(s, 1, "match"), text(p, 2, "match")
  local at = from(s, init)
  if at > #s then return nil end
  local n = c_find(cx, s, #s, p, #p, at, 2)
  if n == 0 then return sub(s, cx.start + 1, cx["end"]) end
  if n == 1 then return capture(s, 0) end
  if n > 1 then return captures(s, n, 0) end
  if n == -1 then return nil end
  fail(n)
end

function string.gmatch(s, p)
  s, p = text(s, 1, "gmatch"), text(p, 2, "gmatch")
  local at = 0
  return function()
    if at > #s then return nil end
    local n = c_find(cx, s, #s, p, #p, at, 3)
    if n == -1 then at = #s + 1 return nil end
    if n < 0 then fail(n) end
    local first, last = cx.start, cx["end"]
    at = last == first and last + 1 or last
    if n == 0 then return sub(s, first + 1, last) end
    return captures(s, n, 0)
  end
end

function string.gsub(s, p, r, limit)
  s, p = text(s, 1, "gsub"), text(p, 2, "gsub")
  local kind = type(r)
  if kind == "number" then r = tostring(r) kind = "string" end
  local escaped = kind == "string" and c_find(cx, r, #r, "%", 1, 0, 1) >= 0
  local anchored = byte(p) == 94
  local out, o, at, count = {}, 0, 0, 0
  while at <= #s and not (limit and count >= limit) do
    local n = c_find(cx, s, #s, p, #p, at, 2)
    if n == -1 then break end
    if n < 0 then fail(n) end
    local first, last = cx.start, cx["end"]
    if first > at then o = o + 1 out[o] = sub(s, at + 1, first) end
    local whole, v = sub(s, first + 1, last), nil
    if kind == "string" then
      if escaped then
        local i = 1
        while i <= #r do
          local c = sub(r, i, i)
          if c == "%" then
            i = i + 1
            c = sub(r, i, i)
            local d = byte(c)
            if d and d >= 48 and d <= 57 then
              if d == 48 or (d == 49 and n == 0) then c = whole
              elseif d - 48 > n then error("invalid capture index", 2)
              else c = capture(s, d - 49) end
            end
          end
          o = o + 1
          out[o] = c
          i = i + 1
        end
        v = ""
      else
        v = r
      end
    elseif kind == "table" then
      if n == 0 then v = r[whole] else v = r[capture(s, 0)] end
    elseif kind == "function" then
      if n == 0 then v = r(whole) else v = r(captures(s, n, 0)) end
    else
      error("bad argument #3 to 'gsub' (string/function/table expected, got " .. kind .. ")", 2)
    end
    if not v then v = whole
    elseif type(v) ~= "string" and type(v) ~= "number" then error("invalid replacement value (a " .. type(v) .. ")", 2) end
    o = o + 1
    out[o] = v
    count = count + 1
    if last == first then
      o = o + 1
      out[o] = sub(s, last + 1, last + 1)
      at = last + 1
    else
      at = last
    end
    if anchored then break end
  end
  if count == 0 then return s, 0 end
  out[o + 1] = sub(s, at + 1)
  return concat(out), count
end

-- A sort of many elements without a function of Lua would run without any instruction of Lua.
local sort = table.sort
local function less(a, b) return a < b end
table.sort = function(t, f)
  if f == nil and type(t) == "table" and #t > 1000 then f = less end
  return sort(t, f)
end

-- A reader could call `load` again, within the parser; and bytecode is not safe.
local loadstring, native_load = loadstring, load
load = function(f, name, mode, env)
  if type(f) == "function" then
    local t = {}
    for piece in f do
      if piece == "" then break end
      t[#t + 1] = piece
    end
    f = concat(t)
    name = name or "=(load)"
  end
  if env ~= nil then return native_load(f, name, "t", env) end
  return native_load(f, name, "t")
end
loadstring = load

-- The handler of xpcall runs before the stack is unwound, within the hook, where no other hook runs: it could loop.
local xpcall = xpcall
_G.xpcall = function(f, handler, ...)
  if type(handler) ~= "function" then return xpcall(f, handler, ...) end
  return xpcall(f, function(e)
    if c_stopped(cx) ~= 0 then return e end
    return handler(e)
  end, ...)
end

debug.sethook = nil
debug.gethook = nil
