-- `kong.db`: reads of entities. Lua code cannot write the store. Source: kong/db/dao/init.lua.
local SB = ...
local functions, cx = SB.functions, SB.cx
local ffi_string = require("ffi").string
local type, error, tostring, setmetatable, sub, rawget, rawset =
  type, error, tostring, setmetatable, string.sub, rawget, rawset
local json = SB.json
local c_kind, c_entity, c_entity_id, c_entity_ids =
  functions.entity_kind, functions.entity, functions.entity_id, functions.entity_ids

-- Returns nil and an error in Kong's form: the text and the table of it.
local function refused(code, name, message)
  local strategy = kong.db.strategy
  return nil, "[" .. strategy .. "] " .. message, {code = code, name = name, message = message, strategy = strategy}
end

local function unreadable()
  return refused(7, "database error", ffi_string(cx.ptr, cx.len))
end

-- Reads the entity of the row with this id.
local function read(kind, id)
  local code = c_entity(cx, kind, id, #id)
  if code == 0 then return nil end
  if code ~= 1 then return unreadable() end
  local entity = json.read(ffi_string(cx.ptr, cx.len))
  entity.ws_id = nil
  return entity
end

local dao = {}

dao.select = function(self, key, ...)
  if type(key) ~= "table" then error("primary_key must be a table", 2) end
  local id = key.id
  if type(id) ~= "string" or not SB.is_uuid(id) then return refused(2, "schema violation", "invalid primary key") end
  local entity, err, details = read(self.kind, id)
  return entity, err, details
end

local function select_by(self, field, value)
  if type(value) ~= "string" then return refused(2, "schema violation", "expected a string") end
  if value == "" then return refused(2, "schema violation", "length must be at least 1") end
  local code = c_entity_id(cx, self.kind, field, #field, value, #value)
  if code == 0 then return nil end
  if code ~= 1 then return unreadable() end
  return read(self.kind, ffi_string(cx.ptr, cx.len))
end

-- Numbers of rows in a page: by default, and at most.
local PAGE, MAX_PAGE = 100, 1000

dao.page = function(self, size, offset, ...)
  size = size or PAGE
  if type(size) ~= "number" then error("size must be a number", 2) end
  if size < 1 or size > MAX_PAGE then
    return refused(9, "invalid size", "size must be an integer between 1 and " .. MAX_PAGE)
  end
  local after = offset or ""
  if type(after) ~= "string" then error("offset must be a string", 2) end
  local count = c_entity_ids(cx, self.kind, size, after, #after)
  if count < 0 then return unreadable() end
  local ids = {}
  for i = 1, count do ids[i] = (SB.item(i - 1)) end
  local rows = {}
  for i = 1, count do
    local row, err, details = read(self.kind, ids[i])
    if err then return nil, err, details end
    -- A row may have been deleted since the ids were read.
    if row then rows[#rows + 1] = row end
  end
  return setmetatable(rows, json.array_mt), nil, nil, count == size and ids[count] or nil
end

dao.each = function(self, size, ...)
  local rows, err, details, offset = self:page(size or PAGE)
  local at, page = 0, 1
  return function(...)
    if not rows then
      if not err then return nil end
      local failure = err
      err = nil
      return false, failure, page
    end
    while at >= #rows do
      if not offset then return nil end
      rows, err, details, offset = self:page(size or PAGE, offset)
      at, page = 0, page + 1
      if not rows then
        local failure = err
        err = nil
        return false, failure, page
      end
    end
    at = at + 1
    return rows[at], nil, page
  end
end

dao.cache_key = function(self, key, a, b, c, d, ...)
  if type(key) == "table" then key = key.id end
  local parts = {self.name, tostring(key or ""), tostring(a or ""), tostring(b or ""), tostring(c or ""), tostring(d or "")}
  return table.concat(parts, ":") .. ":" .. (SB.workspace and SB.workspace() or "")
end

local function cannot_write(operation)
  return function(self, ...)
    local why = kong.db.strategy == "off" and "when not using a database" or "from Lua code"
    return refused(12, "operation unsupported", "cannot " .. operation .. " '" .. self.name .. "' entities " .. why)
  end
end
dao.insert, dao.update, dao.delete = cannot_write("create"), cannot_write("update"), cannot_write("remove")
dao.upsert, dao.truncate = cannot_write("create or update"), cannot_write("truncate")

local dao_mt = {__index = function(self, name)
  local method = dao[name]
  if method then return method end
  if type(name) ~= "string" then return nil end
  if sub(name, 1, 10) == "select_by_" then
    local field = sub(name, 11)
    local made = function(this, value, ...)
      local entity, err, details = select_by(this, field, value)
      return entity, err, details
    end
    rawset(self, name, made)
    return made
  end
  if sub(name, 1, 10) == "update_by_" or sub(name, 1, 10) == "upsert_by_" then return dao.update end
  if sub(name, 1, 10) == "delete_by_" then return dao.delete end
end}

kong.db = setmetatable({}, {__index = function(self, name)
  if type(name) ~= "string" then return nil end
  if name == "strategy" then return SB.setting("database") or "off" end
  local kind = c_kind(cx, name, #name)
  if kind == 0 then return nil end
  local made = setmetatable({name = name, kind = kind}, dao_mt)
  rawset(self, name, made)
  return made
end})
