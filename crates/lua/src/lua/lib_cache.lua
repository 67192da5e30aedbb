-- The modules resty.lrucache and resty.lock.
local SB = ...
local type, error, tonumber, setmetatable, pairs = type, error, tonumber, setmetatable, pairs
local min = math.min
local now, sleep = ngx.now, ngx.sleep
local P = package.preload

-- A cache is a ring of entries in the order of their use, the newest first.
local function remove(entry)
  entry.before.after, entry.after.before = entry.after, entry.before
end

local function put_first(ring, entry)
  entry.before, entry.after = ring, ring.after
  ring.after.before, ring.after = entry, entry
end

local function empty_ring()
  local ring = {}
  ring.before, ring.after = ring, ring
  return ring
end

local lrucache = {_VERSION = "0.15"}
lrucache.__index = lrucache

function lrucache.new(size)
  size = tonumber(size)
  if not size then error("bad argument #1 to 'new' (number expected)", 2) end
  if size < 1 then return nil, "size too small" end
  return setmetatable({size = size, used = 0, ring = empty_ring(), entries = {}}, lrucache)
end

function lrucache:get(key)
  local entry = self.entries[key]
  if not entry then return nil end
  remove(entry)
  put_first(self.ring, entry)
  if entry.expires and entry.expires < now() then return nil, entry.value, entry.flags end
  return entry.value, nil, entry.flags
end

function lrucache:set(key, value, ttl, flags)
  local entry = self.entries[key]
  if entry then
    remove(entry)
  elseif self.used >= self.size then
    entry = self.ring.before
    remove(entry)
    self.entries[entry.key] = nil
    self.entries[key] = entry
  else
    entry = {}
    self.used = self.used + 1
    self.entries[key] = entry
  end
  entry.key, entry.value = key, value
  entry.expires = ttl and now() + ttl or nil
  entry.flags = type(flags) == "number" and flags >= 0 and flags or 0
  put_first(self.ring, entry)
end

function lrucache:delete(key)
  local entry = self.entries[key]
  if not entry then return false end
  remove(entry)
  self.entries[key] = nil
  self.used = self.used - 1
  return true
end

function lrucache:count() return self.used end
function lrucache:capacity() return self.size end

function lrucache:get_keys(most, keys)
  if not most or most == 0 then most = self.used end
  keys = keys or {}
  local entry, n = self.ring.after, 0
  while entry ~= self.ring and n < most do
    n = n + 1
    keys[n] = entry.key
    entry = entry.after
  end
  keys[n + 1] = nil
  return keys
end

function lrucache:flush_all()
  self.used, self.ring, self.entries = 0, empty_ring(), {}
end

P["resty.lrucache"] = function() return lrucache end
P["resty.lrucache.pureffi"] = function() return lrucache end

-- Locks in a shared dictionary. A lock is a key that only one can add.
local lock = {_VERSION = "0.09"}
lock.__index = lock

function lock.new(_, name, options)
  local dictionary = type(name) == "table" and name or ngx.shared[name]
  if not dictionary then return nil, "dictionary not found" end
  local made = {dictionary = dictionary, timeout = 5, exptime = 30, step = 0.001, ratio = 2, max_step = 0.5}
  for field in pairs({timeout = 1, exptime = 1, step = 1, ratio = 1, max_step = 1}) do
    local value = options and options[field]
    if value then made[field] = value end
  end
  made.timeout = min(made.timeout, made.exptime)
  return setmetatable(made, lock)
end

function lock:lock(key)
  if not key then return nil, "nil key" end
  if self.key then return nil, "locked" end
  local step, elapsed = self.step, 0
  while true do
    local ok, err = self.dictionary:add(key, true, self.exptime)
    if ok then
      self.key = key
      return elapsed
    end
    if err ~= "exists" then return nil, err end
    if self.timeout <= elapsed then return nil, "timeout" end
    step = min(step, self.timeout - elapsed)
    sleep(step)
    elapsed = elapsed + step
    step = min(step * self.ratio, self.max_step)
    if step <= 0 then return nil, "timeout" end
  end
end

function lock:unlock()
  local key = self.key
  if not key then return nil, "unlocked" end
  self.key = nil
  local ok, err = self.dictionary:delete(key)
  if not ok and err then return nil, err end
  return 1
end

function lock:expire(seconds)
  if not self.key then return nil, "unlocked" end
  local ok, err = self.dictionary:replace(self.key, true, seconds or self.exptime)
  if not ok then return nil, err end
  return true
end

P["resty.lock"] = function() return lock end
