-- `kong.worker_events` and `kong.cluster_events`: events between the Lua code of the workers and of the nodes.
-- Source: lua-resty-events, lib/resty/events/compat/init.lua; kong/cluster_events/init.lua.
local SB = ...
local functions, cx, json = SB.functions, SB.cx, SB.json
local ffi_string = require("ffi").string
local type, error, pcall, tostring, next, setmetatable = type, error, pcall, tostring, next, setmetatable
local c_post, c_take = functions.event_post, functions.event_take
local HERE, EVERYWHERE = 0, 1

-- The callbacks by source and event. `*` stands for all of them.
local callbacks = {}

local function add(source, event, callback)
  local of_source = callbacks[source] or {}
  callbacks[source] = of_source
  local list = of_source[event] or {}
  of_source[event] = list
  list[#list + 1] = callback
end

local function remove(source, event, callback)
  local list = callbacks[source] and callbacks[source][event]
  for i = list and #list or 0, 1, -1 do
    if list[i] == callback then table.remove(list, i) end
  end
end

local function call(source, event, message)
  local list = callbacks[source] and callbacks[source][event]
  -- A callback may register another one.
  local copy = {}
  for i = 1, list and #list or 0 do copy[i] = list[i] end
  for i = 1, #copy do
    local ok, err = pcall(copy[i], message.data, message.event, message.source, message.worker)
    if not ok then
      kong.log.err("event callback failed; source=", message.source, ", event=", message.event, " err: ", err)
    end
  end
end

-- Calls the callbacks of the event that has arrived.
function SB.deliver_event()
  if c_take(cx) ~= 1 then return end
  local message = json.read(ffi_string(cx.ptr, cx.len))
  if message.data == json.null then message.data = nil end
  call("*", "*", message)
  call(message.source, "*", message)
  call(message.source, message.event, message)
end

local function text_of(value, name)
  if type(value) ~= "string" or value == "" then error(name .. " is required", 4) end
  return value
end

local function post(to, source, event, data)
  text_of(source, "source")
  text_of(event, "event")
  local message = {source = source, event = event, data = data, worker = ngx.worker.id()}
  local ok, text, err = pcall(json.write, message)
  if not ok or not text then return nil, "failed to publish event: " .. tostring(ok and err or text) end
  local most = SB.setting("worker_events_max_payload") or 65535
  if #text > most then return nil, "failed to publish event: payload exceeds the limitation (" .. most .. ")" end
  if c_post(cx, to, text, #text) ~= 1 then return nil, "failed to publish event: no worker runs" end
  return "done"
end

local worker_events = {}
kong.worker_events = worker_events

-- An event that only one worker gets is delivered here.
worker_events.post = function(source, event, data, unique, ...)
  local done, err = post(unique and HERE or EVERYWHERE, source, event, data)
  return done, err
end
worker_events.post_local = function(source, event, data, ...)
  local done, err = post(HERE, source, event, data)
  return done, err
end

worker_events.register = function(callback, source, event, ...)
  if type(callback) ~= "function" then error("expected callback to be a function, got: " .. type(callback), 2) end
  add(source or "*", source and event or "*", callback)
end
worker_events.register_weak = worker_events.register
worker_events.unregister = function(callback, source, event, ...)
  remove(source or "*", source and event or "*", callback)
end

worker_events.event_list = function(source, ...)
  local list = {_source = source}
  for _, name in next, {...} do list[name] = name end
  return setmetatable(list, {__index = function(_, name)
    error("event '" .. tostring(name) .. "' is an unknown event", 2)
  end})
end
worker_events.configured = function(...) return true end
worker_events.poll = function(...) return "done" end

-- A node does not get its own events, and there are no other nodes.
local cluster_events = {}
kong.cluster_events = cluster_events

cluster_events.broadcast = function(_, channel, data, delay, ...)
  if type(channel) ~= "string" then return nil, "channel must be a string" end
  if type(data) ~= "string" then return nil, "data must be a string" end
  if delay and type(delay) ~= "number" then return nil, "delay must be a number" end
  return true
end
cluster_events.subscribe = function(_, channel, callback, ...)
  if type(channel) ~= "string" then error("channel must be a string") end
  if type(callback) ~= "function" then error("callback must be a function") end
  return true
end
