-- `kong.tracing` and `kong.telemetry` as they are when tracing is off. Sources: kong/pdk/{tracing,telemetry}.lua.
local type, setmetatable = type, setmetatable

local function nothing(...) end

-- A span that records nothing. What is assigned to it is lost.
local methods = {
  is_recording = false,
  finish = nothing, set_attribute = nothing, add_event = nothing, record_error = nothing, set_status = nothing,
  each_baggage_item = function(...) return nothing end,
}

local function span(...)
  local made = {}
  for name, value in pairs(methods) do made[name] = value end
  return setmetatable(made, {__newindex = nothing})
end

local tracing = {
  name = "noop",
  start_span = span,
  active_span = nothing, set_active_span = nothing, process_span = nothing, get_root_span = nothing,
  get_spans = nothing, set_should_sample = nothing, get_sampling_decision = nothing,
}
tracing.new = function(...) return tracing end
kong.tracing = setmetatable(tracing, {__call = function() return tracing end})

local DISABLED = "Telemetry logging is disabled: log entry will not be recorded. Ensure the OpenTelemetry plugin is "
  .. "correctly configured to report logs in order to use this feature."

kong.telemetry = {log = function(plugin_name, plugin_config, message_type, message, attributes, ...)
  if type(plugin_name) ~= "string" then return nil, "plugin_name must be a string" end
  if type(plugin_config) ~= "table" then return nil, "plugin_config must be a table" end
  if type(message_type) ~= "string" then return nil, "message_type must be a string" end
  if message ~= nil and type(message) ~= "string" then return nil, "message must be a string" end
  if attributes ~= nil and type(attributes) ~= "table" then return nil, "attributes must be a table" end
  return nil, DISABLED
end}
