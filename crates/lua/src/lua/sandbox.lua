-- Compiles the user's texts, with the globals that the settings allow. Source: kong/tools/sandbox.lua,
-- kong/plugins/pre-function/_handler.lua, kong/plugins/request-transformer/access.lua.
local SB = ...
local functions, cx, code = SB.functions, SB.cx, SB.constants.code
local ffi_string = require("ffi").string
local loadstring, setfenv, setmetatable, error, require, tostring, type, next, concat, clear =
  loadstring, setfenv, setmetatable, error, require, tostring, type, next, table.concat, table.clear
local _G, c_result = _G, functions.result

-- Copies the global with this name into `target`. `a.b` is the field of a library: the target gets a library with it.
local function link(name, source, target)
  local head, rest = name:match("([^%.]+)%.?(.*)")
  local value = head and type(source) == "table" and source[head]
  if value == nil or value == false then return end
  if rest ~= "" then
    if type(target[head]) ~= "table" then target[head] = {} end
    return link(rest, value, target[head])
  end
  -- Changes of the table do not reach the original.
  target[head] = type(value) == "table" and setmetatable({}, {__index = value}) or value
end

-- Snippets share this table, as in Kong. What they add to it stays there.
local own_kong = setmetatable({}, {__index = kong})

-- Returns what the settings add to the sandbox.
local function additions(text)
  local allowed, added = {}, {}
  for kind, name in text:gmatch("(%a)([^\n]*)\n") do
    -- LPeg compiles patterns without looking at the time, so it is for trusted code only.
    if kind == "r" and name ~= "lpeg" and name ~= "re" then allowed[name] = true end
    if kind == "e" then link(name, _G, added) end
  end
  added.require = function(name)
    if not allowed[name] then error("require '" .. tostring(name) .. "' not allowed within sandbox") end
    return require(name)
  end
  return added
end

-- The globals by the text of the settings: functions that return the globals for a snippet, a template and a field.
local known = {}

local function globals_of(text)
  local globals = known[text]
  if globals then return globals end
  if text == "" then
    -- All snippets share their globals, but the VM's own stay as they are.
    local shared = setmetatable({kong = own_kong, ngx = ngx}, {__index = _G})
    local fields = setmetatable({kong = kong, ngx = ngx}, {__index = _G})
    globals = {
      snippet = function() return shared end,
      field = function() return fields end,
      template = setmetatable({type = type}, {__index = _G}),
    }
  else
    local added = additions(text)
    local given = setmetatable({kong = own_kong, ngx = ngx}, {__index = added})
    local fields = setmetatable({kong = kong, ngx = ngx}, {__index = added})
    globals = {
      snippet = function() return SB.sandbox(given) end,
      field = function() return SB.sandbox(fields) end,
      template = setmetatable({type = type}, {__index = added}),
    }
  end
  known[text] = globals
  return globals
end

-- Compiles a text. A chunk has `...`, so LuaJIT never compiles it to machine code; a function within it is. So the function
-- that runs is one around the text. If the text uses `...` itself, that does not parse, and the chunk runs.
local function compiled(text)
  local chunk, err = loadstring(text, text)
  if not chunk then error(err, 0) end
  local around = loadstring("return function() " .. text .. "\nend", text)
  return around and around() or chunk
end

local compile = {}

compile[code.snippet] = function(text, globals)
  return setfenv(compiled(text), globals.snippet())
end

-- The values of the request that templates see. Each is made when a template first uses it.
local get_headers, get_query, get_captures = kong.request.get_headers, kong.request.get_query, kong.request.get_uri_captures
local makers = {
  headers = function() return (get_headers()) end,
  query_params = function() return (get_query()) end,
  uri_captures = function()
    local captures = get_captures()
    local all = {}
    for number, value in next, captures.unnamed do all[number] = value end
    for name, value in next, captures.named do all[name] = value end
    return all
  end,
  shared = function() return SB.context().shared end,
}

-- A template is Lua code that returns a function, which returns the pieces of the text.
compile[code.template] = function(text, globals)
  local chunk, err = loadstring(text, "TMP")
  if not chunk then error(err, 0) end
  local others, made = globals.template, {}
  local env = setmetatable({__tostring = tostring}, {
    __index = function(_, name)
      local value = made[name]
      if value ~= nil then return value end
      local make = makers[name]
      if not make then return others[name] end
      value = make()
      made[name] = value
      return value
    end,
  })
  local render = setfenv(chunk, env)()
  return function()
    clear(made)
    local rendered = concat(render())
    clear(made)
    c_result(cx, rendered, #rendered)
  end
end

-- Whether a value can be in a log record. Source: kong/pdk/log.lua.
local function is_valid(v, seen)
  local kind = type(v)
  if v == nil or kind == "number" or kind == "string" or kind == "boolean" then return true end
  if kind ~= "table" or seen[v] then return false end
  seen[v] = true
  for key, value in next, v do
    if not is_valid(key, seen) or not is_valid(value, seen) then return false end
  end
  return true
end

-- Sets a field of the log record, as `kong.log.set_serialize_value` does.
local function set_field(key, value)
  if not is_valid(value, {}) then
    error("value must be nil, a number, string, boolean or a non-self-referencial table containing numbers, string and booleans", 0)
  end
  local text, err = "", nil
  if value ~= nil then
    text, err = SB.json.write(value)
    if not text then error(err, 0) end
  end
  local code = functions.log_field(cx, 0, value == nil and 0 or 1, key, #key, text, #text)
  if code ~= 1 then error("the field cannot be set", 0) end
end

-- A field of the log record: the key is at `cx.ptr` when the function runs. Its globals are new each time, as in Kong.
compile[code.field] = function(text, globals)
  local run, env = compiled(text), globals.field()
  local is_own = env._G == env
  local first = {}
  if is_own then for name, value in next, env do first[name] = value end end
  setfenv(run, env)
  return function()
    local key = ffi_string(cx.ptr, cx.len)
    set_field(key, (run()))
    if not is_own then return end
    for name in next, env do
      if first[name] == nil then env[name] = nil end
    end
    for name, value in next, first do env[name] = value end
  end
end

-- The groups of the client that Lua code has set. Each is written as its kind, its length and its text.
-- Source: kong/plugins/acl/groups.lua get_authenticated_groups().
compile[code.groups] = function()
  return function()
    local context = SB.context()
    local groups = context.shared.authenticated_groups
    if type(groups) ~= "table" then groups = context.ctx.authenticated_groups end
    if type(groups) ~= "table" then return end
    local written = {}
    for i = 1, #groups do
      local group = groups[i]
      local kind = type(group)
      if kind ~= "string" and kind ~= "number" then
        error("authenticated_groups has a " .. kind .. " at index " .. i, 0)
      end
      local text = tostring(group)
      written[i] = (kind == "string" and "s" or "n") .. #text .. ":" .. text
    end
    written = concat(written)
    c_result(cx, written, #written)
  end
end

-- Compiles the text at `cx.ptr`, with the globals at `cx.ptr2`.
function SB.compile()
  local text, settings, kind = ffi_string(cx.ptr, cx.len), ffi_string(cx.ptr2, cx.len2), cx.number
  return compile[kind](text, globals_of(settings))
end
