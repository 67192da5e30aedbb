-- `ngx.re`: regexes by PCRE2. Source: lua-resty-core, lib/resty/core/regex.lua.
local SB = ...
local functions, cx, own = SB.functions, SB.cx, SB.ngx
local ffi = require "ffi"
local cast, size_ptr = ffi.cast, ffi.typeof("const size_t *")
local type, error, tostring, tonumber, sub, concat, byte, find = type, error, tostring, tonumber, string.sub, table.concat, string.byte, string.find
local c_compile, c_run, c_names = functions.regex_compile, functions.regex_run, functions.regex_names
local ffi_string = ffi.string

-- The position of a group that has not matched.
local UNSET = 2 ^ 63

local function as_text(value)
  if type(value) == "string" then return value end
  return tostring(value)
end

-- Compiles a regex, and returns the number of its groups and names, or nil and an error. It must follow directly before
-- the match: the regex that was compiled last is the one that runs.
local function compile(regex, options)
  options = options or ""
  if type(options) ~= "string" then options = tostring(options) end
  if c_compile(cx, regex, #regex, options, #options) == 1 then
    return tonumber(cx.number), tonumber(cx.flags)
  end
  return nil, ffi_string(cx.ptr, cx.len)
end

-- Matches the regex that was compiled last from a position that is counted from 0. Returns the positions, or nil and
-- perhaps an error.
local function run(subject, from)
  local code = c_run(cx, from, subject, #subject)
  if code > 0 then return cast(size_ptr, cx.ptr), code end
  if code == 0 then return nil end
  if code == -2 then error("stopped: it ran for too long", 0) end
  return nil, "pcre_exec() failed: " .. code
end

-- Returns the text of a group: false if it has not matched.
local function group(subject, positions, count, number)
  if number >= count then return false end
  local from = tonumber(positions[2 * number])
  if from >= UNSET then return false end
  return sub(subject, from + 1, tonumber(positions[2 * number + 1]))
end

-- Fills a table with the groups of a match.
local function captures(subject, positions, count, groups, names, has_duplicates, t)
  for i = 0, groups do t[i] = group(subject, positions, count, i) end
  if names > 0 then
    for i = 0, c_names(cx) - 1 do
      local name, number = SB.item(i)
      local value = t[tonumber(number)]
      if has_duplicates then
        -- The list of a name has what has matched.
        if value then
          local known = t[name]
          if known then known[#known + 1] = value else t[name] = {value} end
        end
      elseif not t[name] then
        t[name] = value
      end
    end
  end
  return t
end

local function has_flag(options, flag)
  return options ~= nil and find(tostring(options), flag, 1, true) ~= nil
end

-- Returns the position to start at, counted from 0.
local function start_of(context)
  local at = context and tonumber(context.pos) or 1
  if at < 1 then return 0 end
  if at > 2147483647 then return 2147483647 end
  return at - 1
end

own.re = {}
local re = own.re

re.match = function(subject, regex, options, context, t, ...)
  subject, regex = as_text(subject), as_text(regex)
  if context ~= nil and type(context) ~= "table" then error("bad argument #4 to 'match' (table expected)", 2) end
  local groups, names = compile(regex, options)
  if not groups then return nil, names end
  local positions, count = run(subject, start_of(context))
  if not positions then return nil, count end
  if context then context.pos = tonumber(positions[1]) + 1 end
  local found = captures(subject, positions, count, groups, names, has_flag(options, "D"), t or {})
  return found
end

re.find = function(subject, regex, options, context, nth, ...)
  subject, regex = as_text(subject), as_text(regex)
  if context ~= nil and type(context) ~= "table" then error("bad argument #4 to 'find' (table expected)", 2) end
  local groups, err = compile(regex, options)
  if not groups then return nil, nil, err end
  local positions, count = run(subject, start_of(context))
  if not positions then
    if count then return nil, nil, count end
    return nil
  end
  if context then context.pos = tonumber(positions[1]) + 1 end
  nth = tonumber(nth) or 0
  if nth > groups or nth < 0 then return nil, nil, "nth out of bound" end
  if nth >= count then return nil, nil end
  local from = tonumber(positions[2 * nth])
  if from >= UNSET then return nil, nil end
  return from + 1, tonumber(positions[2 * nth + 1])
end

-- Returns the position after a match, so that an empty one is not found again.
local function after(subject, from, to, is_utf)
  if to > from then return to end
  to = to + 1
  if is_utf then
    while true do
      local next_byte = byte(subject, to + 1)
      if not next_byte or next_byte < 128 or next_byte >= 192 then break end
      to = to + 1
    end
  end
  return to
end

re.gmatch = function(subject, regex, options, ...)
  subject, regex = as_text(subject), as_text(regex)
  local groups, err = compile(regex, options)
  if not groups then return nil, err end
  local at, is_utf = 0, has_flag(options, "u") or has_flag(options, "U")
  local has_duplicates = has_flag(options, "D")
  return function(...)
    if at > #subject then return nil end
    -- Other regexes may have run since the last match.
    local groups, names = compile(regex, options)
    if not groups then return nil, names end
    local positions, count = run(subject, at)
    if not positions then
      at = #subject + 1
      return nil, count
    end
    local from, to = tonumber(positions[0]), tonumber(positions[1])
    local t = captures(subject, positions, count, groups, names, has_duplicates, {})
    at = after(subject, from, to, is_utf)
    return t
  end
end

-- Splits a replacement into texts and numbers of groups. Returns nil and an error if it is malformed.
local function parts_of(text)
  local parts, at = {}, 1
  while true do
    local dollar = find(text, "$", at, true)
    if not dollar then
      parts[#parts + 1] = sub(text, at)
      return parts
    end
    parts[#parts + 1] = sub(text, at, dollar - 1)
    local _, last, number = find(text, "^(%d+)", dollar + 1)
    if not number then _, last, number = find(text, "^{(%d+)}", dollar + 1) end
    if number then
      parts[#parts + 1] = tonumber(number)
      at = last + 1
    elseif sub(text, dollar + 1, dollar + 1) == "$" then
      parts[#parts + 1] = "$"
      at = dollar + 2
    else
      return nil, 'failed to compile the replacement template: invalid capturing variable name found in "' .. text .. '"'
    end
  end
end

local function substitute(subject, regex, replacement, options, most)
  local groups, names = compile(regex, options)
  if not groups then return nil, nil, names end
  local kind, parts = type(replacement), nil
  if kind ~= "function" then
    local err
    parts, err = parts_of(as_text(replacement))
    if not parts then return nil, nil, err end
  end
  local is_utf = has_flag(options, "u") or has_flag(options, "U")
  local has_duplicates = has_flag(options, "D")
  local out, n, at, copied, count = {}, 0, 0, 0, 0
  while count < most and at <= #subject do
    -- A function may have used other regexes.
    if count > 0 then compile(regex, options) end
    local positions, matched = run(subject, at)
    if not positions then
      if matched then return nil, nil, matched end
      break
    end
    local from, to = tonumber(positions[0]), tonumber(positions[1])
    n = n + 1
    out[n] = sub(subject, copied + 1, from)
    if parts then
      for i = 1, #parts do
        local part = parts[i]
        if type(part) == "number" then
          if part > groups then part = "" else part = group(subject, positions, matched, part) or "" end
        end
        n = n + 1
        out[n] = part
      end
    else
      local value = replacement(captures(subject, positions, matched, groups, names, has_duplicates, {}))
      n = n + 1
      out[n] = tostring(value)
    end
    count = count + 1
    copied = to
    at = after(subject, from, to, is_utf)
  end
  if count == 0 then return subject, 0 end
  out[n + 1] = sub(subject, copied + 1)
  return concat(out), count
end

re.sub = function(subject, regex, replacement, options, ...)
  local text, count, err = substitute(as_text(subject), as_text(regex), replacement, options, 1)
  return text, count, err
end
re.gsub = function(subject, regex, replacement, options, ...)
  local text, count, err = substitute(as_text(subject), as_text(regex), replacement, options, 1 / 0)
  return text, count, err
end
