-- The fields of `ngx.ctx` that Kong's core sets and that snippets read. They are made when they are read.
-- Source: kong/runloop/handler.lua, kong/pdk/private/phases.lua.
local SB = ...
local functions, cx, constants, own, json = SB.functions, SB.cx, SB.constants, SB.ngx, SB.json
local setmetatable, tonumber = setmetatable, tonumber
local band, rawset, find, floor = bit.band, rawset, string.find, math.floor
local P = constants.phase

-- The bits of Kong's phases.
local KONG_PHASES = {
  [P.certificate] = 0x2, [P.rewrite] = 0x10, [P.access] = 0x20, [P.response] = 0x80, [P.header_filter] = 0x200,
  [P.body_filter] = 0x400, [P.log] = 0x2000,
}

-- Returns a reader of an entity as a table.
local function entity(name)
  local read = SB.text_reader(name)
  return function()
    local text = read()
    if text then return (json.read(text)) end
  end
end

-- Milliseconds at which the request has begun. The gateway does not note when its phases begin.
local function started() return floor(own.req.start_time() * 1000) end

local source = SB.text_reader("source")
-- Values that change during the request.
local live = {
  KONG_PHASE = function() return KONG_PHASES[cx.phase] end,
  KONG_PROXIED = function() return source() == "service" or nil end,
  KONG_EXITED = function() return source() == "exit" or nil end,
  authenticated_consumer = entity("consumer"),
}

local function kind_of(host)
  if find(host, ":", 1, true) then return "ipv6" end
  if find(host, "^%d+%.%d+%.%d+%.%d+$") then return "ipv4" end
  return "name"
end

local TRIES = constants.list.tries

-- The fields of `balancer_data` that change with each try.
local tries_mt = {__index = function(_, name)
  if name ~= "tries" and name ~= "try_count" then return nil end
  local tries = {}
  for i = 1, functions.list(cx, TRIES, 2147483647) do
    local ip, port = SB.item(i - 1)
    tries[i] = {ip = ip, port = tonumber(port)}
  end
  if name == "try_count" then return #tries end
  return tries
end}

-- Values that stay as they are first read, so that what Lua code changes in a table is kept.
local kept = {
  route = entity("route"),
  service = entity("service"),
  plugin_id = SB.text_reader("plugin_id"),
  request_uri = SB.text_reader("target"),
  host_port = SB.number_reader("port"),
  workspace = SB.text_reader("workspace"),
  KONG_PROCESSING_START = started,
  KONG_REWRITE_START = started,
  KONG_ACCESS_START = function()
    if band(cx.nginx, P.certificate + P.rewrite) == 0 then return started() end
  end,
  delay_response = function() return true end,
  router_matches = function() return {} end,
  balancer_data = function()
    local service = own.ctx.service
    if not service then return nil end
    return setmetatable({
      scheme = service.protocol, type = kind_of(service.host), host = service.host, port = service.port,
      retries = service.retries, connect_timeout = service.connect_timeout,
      send_timeout = service.write_timeout, read_timeout = service.read_timeout,
    }, tries_mt)
  end,
}

SB.ctx_mt.__index = function(t, name)
  if band(cx.nginx, SB.REQUEST) == 0 then return nil end
  local read = live[name]
  if read then
    local value = read()
    return value
  end
  read = kept[name]
  if not read then return nil end
  local value = read()
  -- Before routing, some values are not known yet.
  if value ~= nil then rawset(t, name, value) end
  return value
end
