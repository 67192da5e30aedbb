-- `kong.node`, `kong.nginx`, `kong.cluster` and `kong.configuration`. Sources: kong/pdk/{node,nginx,cluster}.lua.
local SB = ...
local error, type, setmetatable, format, lower, floor = error, type, setmetatable, string.format, string.lower, math.floor

local node_id, hostname = SB.text_reader("node_id"), SB.text_reader("hostname")
local pid, memory = SB.number_reader("worker_pid"), SB.number_reader("vm_memory")

local units = {b = 1, k = 1024, m = 1024 * 1024, g = 1024 * 1024 * 1024}
local suffixes = {k = "KiB", m = "MiB", g = "GiB"}

-- Returns a number of bytes in a unit, as Kong shows it.
local function shown(bytes, unit, scale)
  if unit == "b" then return bytes end
  return format("%." .. scale .. "f " .. suffixes[unit], bytes / units[unit])
end

local node = {}
kong.node = node

-- Kong's own code asks for the name before any snippet runs, and keeps it here.
function SB.name_node()
  node.hostname = hostname()
  if node.hostname then SB.name_node = nil end
end

node.get_id = function(...) return node_id() end
node.get_hostname = function(...) return hostname() end

node.get_memory_stats = function(unit, scale, ...)
  local wanted = unit == nil and "b" or unit
  if type(wanted) ~= "string" then error("unit must be a string", 2) end
  wanted = lower(wanted)
  if wanted ~= "b" and not suffixes[wanted] then
    error("invalid unit '" .. unit .. "' (expected 'k/K', 'm/M', or 'g/G')", 2)
  end
  scale = scale == nil and 2 or scale
  if type(scale) ~= "number" then error("scale must be a number", 2) end
  if scale < 0 then error("scale must be equal or greater than 0", 2) end
  scale = floor(scale)
  local dicts = {}
  for name, dict in next, ngx.shared or {} do
    if type(dict) == "table" and dict.capacity then
      local capacity = dict:capacity()
      local free = dict.free_space and dict:free_space() or capacity
      dicts[name] = {
        capacity = shown(capacity, wanted, scale),
        allocated_slabs = shown(capacity - free, wanted, scale),
      }
    end
  end
  return {
    workers_lua_vms = setmetatable(
      {{http_allocated_gc = shown(memory(), wanted, scale), pid = pid()}}, SB.json.array_mt),
    lua_shared_dicts = dicts,
  }
end

local nginx = {get_subsystem = function(...) return "http" end}
kong.nginx = nginx

local statistics = {}
for _, name in next, {
  "connections_active", "connections_reading", "connections_writing", "connections_waiting", "connections_accepted",
  "total_requests",
} do
  statistics[name] = SB.number_reader(name)
end
-- Every accepted connection is handled.
statistics.connections_handled = statistics.connections_accepted

nginx.get_statistics = function(...)
  local counts = {}
  for name, read in next, statistics do counts[name] = read() end
  return counts
end

-- Kong's `cluster_id` is a row of its database.
kong.cluster = {get_id = function(...)
  local parameter = kong.db.parameters:select_by_key("cluster_id")
  return parameter and parameter.value
end}

-- The settings that the node shows to plugins. The text is read when a setting is first asked for.
local configuration, settings = SB.text_reader("configuration"), nil
function SB.setting(name)
  if not settings then
    local text = configuration()
    if not text then return nil end
    settings = SB.json.read(text)
  end
  return settings[name]
end

kong.configuration = setmetatable({
  -- Kong returns the settings with the sensitive values masked. They always are here.
  remove_sensitive = function(...)
    SB.setting("")
    local copy = {}
    for name, value in next, settings or copy do copy[name] = value end
    return copy
  end,
}, {
  __index = function(_, name) return SB.setting(name) end,
  __newindex = function()
    error("cannot write to configuration", 2)
  end,
})
