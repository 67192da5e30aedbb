-- `kong.cache` of the sandbox: lua-resty-mlcache without messages between workers, so that nothing can be invalidated.
-- Values are in a table per worker and in the dictionary `kong_db_cache`.
-- Source: kong/tools/sandbox (kong/plugins/pre-function/_handler.lua) and kong/resty/mlcache/init.lua.
local SB = ...
local own, json = SB.ngx, SB.json
local type, error, tostring, tonumber, setmetatable, xpcall, traceback, select, pairs =
  type, error, tostring, tonumber, setmetatable, pcall, debug.traceback, select, pairs
local format, sub, find = string.format, string.sub, string.find

-- The times to live of Kong's cache: `db_cache_ttl` 0 is for ever, and `db_cache_neg_ttl` is the same.
local TTL, NEG_TTL = 0, 0
-- Most values of the table of a worker, and the longest value in it.
local MOST_LOCAL = 1000
local LOCK_WAIT = 5

local dict, misses, locks = own.shared.kong_db_cache, own.shared.kong_db_cache_miss, own.shared.kong_locks
local PREFIX = "pre-function:"

-- The values of this worker, by key: the value and when it expires. Half of them go when there are too many.
local near, near_count = {}, 0

local NIL = {}

local function keep(key, value, ttl)
  if near[key] == nil then
    near_count = near_count + 1
    if near_count > MOST_LOCAL then
      near, near_count = {}, 1
    end
  end
  near[key] = {value, ttl == 0 and 0 or own.now() + ttl}
end

local function near_value(key)
  local entry = near[key]
  if not entry then return nil end
  if entry[2] ~= 0 and entry[2] <= own.now() then
    near[key] = nil
    near_count = near_count - 1
    return nil
  end
  return entry[1]
end

-- Values in the dictionary are texts: the kind, the time to live, the time of writing, and the value.
local function pack(value, ttl)
  local kind, text = type(value), nil
  if kind == "table" then
    local encoded, err = json.write(value)
    if not encoded then return nil, "could not encode value: " .. tostring(err) end
    kind, text = "t", encoded
  elseif kind == "string" then
    kind, text = "s", value
  elseif kind == "number" then
    kind, text = "n", format("%.17g", value)
  elseif kind == "boolean" then
    kind, text = "b", tostring(value)
  else
    error("cannot cache value of type " .. kind)
  end
  return format("%s%.6f:%.3f:", kind, ttl, own.now()) .. text
end

local function unpack_value(packed)
  local _, last, kind, ttl, at = find(packed, "^(%a)([%d.]+):([%d.]+):")
  if not kind then return nil end
  local text, value = sub(packed, last + 1), nil
  if kind == "t" then
    value = json.read(text)
  elseif kind == "n" then
    value = tonumber(text)
  elseif kind == "b" then
    value = text == "true"
  elseif kind == "x" then
    value = NIL
  else
    value = text
  end
  return value, tonumber(ttl), tonumber(at)
end

-- Returns the value in the dictionaries and the rest of its life, or nil.
local function far_value(key)
  local packed = dict:get(PREFIX .. key)
  if packed == nil then packed = misses:get(PREFIX .. key) end
  if packed == nil then return nil end
  local value, ttl, at = unpack_value(packed)
  if value == nil then return nil end
  if ttl == 0 then return value, 0 end
  local rest = ttl - (own.now() - at)
  if rest <= 0 then return nil end
  return value, rest
end

local function store(key, value, ttl, neg_ttl)
  if value == nil then
    local ok, err = misses:set(PREFIX .. key, format("x%.6f:%.3f:", neg_ttl, own.now()), neg_ttl)
    if not ok then return "could not write to lua_shared_dict 'kong_db_cache_miss': " .. err end
    keep(key, NIL, neg_ttl)
    return
  end
  local packed, err = pack(value, ttl)
  if not packed then return err end
  local ok
  ok, err = dict:set(PREFIX .. key, packed, ttl)
  if not ok then return "could not write to lua_shared_dict 'kong_db_cache': " .. err end
  keep(key, value, ttl)
end

local function check_ttl(opts, name)
  local ttl = opts[name]
  if ttl == nil then return end
  if type(ttl) ~= "number" then error("opts." .. name .. " must be a number", 4) end
  if ttl < 0 then error("opts." .. name .. " must be >= 0", 4) end
  return ttl
end

-- Returns the times to live that the options have.
local function options(opts)
  if opts == nil then return TTL, NEG_TTL end
  if type(opts) ~= "table" then error("opts must be a table", 3) end
  return check_ttl(opts, "ttl") or TTL, check_ttl(opts, "neg_ttl") or NEG_TTL
end

-- Waits until nobody else computes the value of a key. Returns whether the key is locked for this caller.
local function lock(key)
  local name, waited, step = PREFIX .. key, 0, 0.001
  while true do
    local ok, err = locks:add(name, true, 30)
    if ok then return true end
    if err ~= "exists" then return false, err end
    if waited >= LOCK_WAIT then return false, "timeout" end
    if not SB.can_wait() then return false, "timeout" end
    own.sleep(step)
    waited = waited + step
    step = step * 2
    if step > 0.5 then step = 0.5 end
  end
end

local cache = {}

-- Returns the value, an error, and where it was found: 1 in this worker, 2 in the dictionary, 3 computed, -1 nowhere.
cache.get = function(self, key, opts, callback, ...)
  if type(key) ~= "string" then error("key must be a string", 2) end
  if callback ~= nil and type(callback) ~= "function" then error("callback must be nil or a function", 2) end
  local value = near_value(key)
  if value == NIL then return nil, nil, 1 end
  if value ~= nil then
    if opts ~= nil and type(opts) ~= "table" then error("opts must be a table", 2) end
    return value, nil, 1
  end
  local ttl, neg_ttl = options(opts)
  local rest
  value, rest = far_value(key)
  if value ~= nil then
    keep(key, value, rest)
    if value == NIL then return nil, nil, 2 end
    return value, nil, 2
  end
  if not callback then return nil, nil, -1 end
  local locked, err = lock(key)
  if not locked then return nil, "could not acquire callback lock: " .. err end
  -- Who had the lock may have computed it.
  value, rest = far_value(key)
  if value ~= nil then
    locks:delete(PREFIX .. key)
    keep(key, value, rest)
    if value == NIL then return nil, nil, 2 end
    return value, nil, 2
  end
  local ok, own_ttl
  ok, value, err, own_ttl = pcall(callback, ...)
  if not ok then
    locks:delete(PREFIX .. key)
    return nil, "callback threw an error: " .. traceback(tostring(value), 2)
  end
  if err ~= nil then
    locks:delete(PREFIX .. key)
    return nil, tostring(err)
  end
  if type(own_ttl) == "number" and own_ttl >= 0 then
    if value == nil then neg_ttl = own_ttl else ttl = own_ttl end
  end
  local stored, failure = pcall(store, key, value, ttl, neg_ttl)
  locks:delete(PREFIX .. key)
  if not stored then error(failure, 0) end
  if failure then return nil, failure end
  return value, nil, 3
end

-- Returns the rest of the life of a value, an error, and the value, without computing it.
cache.peek = function(self, key, stale, ...)
  if type(key) ~= "string" then error("key must be a string", 2) end
  local value, rest = far_value(key)
  if value == nil then return nil end
  if value == NIL then return rest, nil, nil end
  return rest, nil, value
end

-- What other workers would have to be told of. The cache of the sandbox has no way to do that.
cache.set = function(self, key, opts, value, ...)
  error("no ipc to propagate update, specify opts.ipc_shm or opts.ipc", 2)
end
cache.delete = function(self, key, ...)
  error("no ipc to propagate deletion, specify opts.ipc_shm or opts.ipc", 2)
end
cache.purge = function(self, flush_expired, ...)
  error("no ipc to propagate purge, specify opts.ipc_shm or opts.ipc", 2)
end
cache.update = function(self, timeout, ...)
  error("no polling configured, specify opts.ipc_shm or opts.ipc.poll", 2)
end

-- Gets several values: the list has for each its key, options, function and argument, and its number of entries is `n`.
cache.get_bulk = function(self, bulk, opts, ...)
  if type(bulk) ~= "table" then error("bulk must be a table", 2) end
  if type(bulk.n) ~= "number" then error("bulk must have n field", 2) end
  local results = {n = bulk.n * 3}
  for i = 1, bulk.n do
    local at = (i - 1) * 4
    local value, err, level = cache.get(self, bulk[at + 1], bulk[at + 2], bulk[at + 3], bulk[at + 4])
    local to = (i - 1) * 3
    results[to + 1], results[to + 2], results[to + 3] = value, err, level
  end
  return results
end

kong.cache = setmetatable({}, {__index = cache})
