-- `kong.tracing` and `kong.telemetry`. With `tracing_instrumentations`, `kong.tracing` is the tracer of the gateway: what Lua
-- code adds to the root span, and the spans that it finishes, go to Rust for opentelemetry. The gateway's other spans are
-- not visible here. Without it, `kong.tracing` records nothing. Tracers that Lua code makes record what that code does.
-- Sources: kong/pdk/{tracing,telemetry}.lua.
local SB = ...
local cx, functions, P = SB.cx, SB.functions, SB.phase
local ffi_string = require("ffi").string
local type, error, tostring, setmetatable, getmetatable, next, floor =
  type, error, tostring, setmetatable, getmetatable, next, math.floor
local band, byte = bit.band, string.byte
local wrong_phase, json, part = SB.wrong_phase, SB.json, SB.constants.trace
local format, gsub, char, tonumber, pcall = string.format, string.gsub, string.char, tonumber, pcall

-- The tracer of the gateway.
local gateway

local function nothing(...) end

-- A span that records nothing. What is assigned to it is lost.
local silent = setmetatable({
  is_recording = false,
  finish = nothing, set_attribute = nothing, add_event = nothing, record_error = nothing, set_status = nothing,
  each_baggage_item = function(...) return nothing end,
}, {__newindex = nothing})
local function silent_span(...) return silent end

local function now() return floor(ngx.now() * 1000 + 0.5) * 1e6 end

local function random(length)
  functions.random(cx, length)
  return ffi_string(cx.ptr, cx.len)
end

-- Adds something to the trace of the request.
local function tell(where, what)
  if functions.trace_is_recorded(cx) == 0 then return end
  local ok, text, err = pcall(json.write, what)
  if not ok then
    text, err = nil, text
  elseif text and functions.trace_add(cx, where, text, #text) == -3 then
    err = ffi_string(cx.ptr, cx.len)
  end
  if err then kong.log.err("a span cannot be sent: ", err) end
end

local function nanoseconds(at) return format("%.0f", at) end

local function hex(id) return id and (gsub(id, ".", function(c) return format("%02x", byte(c)) end)) end

-- What a span has besides its name and its times.
local function additions(attributes, events, status)
  local told
  for i = 1, events and events[0] or 0 do
    local event = events[i]
    told = told or {}
    told[i] = {name = event.name, time = nanoseconds(event.time_ns), attributes = event.attributes}
  end
  return {attributes = attributes, events = told, status = status}
end

local span_methods = {}
span_methods.__index = span_methods

function span_methods:finish(at, ...)
  if self.end_time_ns ~= nil then return end
  if at ~= nil and type(at) ~= "number" then error("invalid span end time", 2) end
  if at and at < self.start_time_ns then error("invalid span duration", 2) end
  self.end_time_ns = at or now()
  if self.active and self.tracer.active_span() == self then
    self.tracer.set_active_span(self.parent)
    self.active = nil
  end
  if self.tracer == gateway and self.linked and not self.is_root then
    local told = additions(self.attributes, self.events, self.status)
    told.id, told.name, told.kind = hex(self.span_id), self.name, self.kind
    local parent = self.parent
    told.parent = hex(not (parent and parent.is_root) and self.parent_id or nil)
    told.start, told["end"] = nanoseconds(self.start_time_ns), nanoseconds(self.end_time_ns)
    tell(part.span, told)
  end
end

local ATTRIBUTES = {["nil"] = true, string = true, number = true, boolean = true, table = true}

function span_methods:set_attribute(key, value, ...)
  if type(key) ~= "string" then error("invalid key", 2) end
  if not ATTRIBUTES[type(value)] then kong.log.err("invalid span attribute value type: ", type(value)) end
  if not self.attributes then self.attributes = {} end
  self.attributes[key] = value
  if self.is_root then tell(part.root, {attributes = {[key] = value}}) end
end

function span_methods:add_event(name, attributes, at, ...)
  if type(name) ~= "string" then error("invalid name", 2) end
  if attributes ~= nil and type(attributes) ~= "table" then error("invalid attribute", 2) end
  local events = self.events
  if not events then
    events = {[0] = 0}
    self.events = events
  end
  local number = events[0] + 1
  local event = {name = name, time_ns = at or now(), attributes = attributes}
  events[0], events[number] = number, event
  if self.is_root then tell(part.root, additions(nil, {[0] = 1, event})) end
end

function span_methods:record_error(message, ...)
  self:add_event("exception", {["exception.message"] = tostring(message)})
end

function span_methods:set_status(status, ...)
  if type(status) ~= "number" then error("invalid status", 2) end
  self.status = status
  if self.is_root then tell(part.root, {status = status}) end
end

function span_methods:each_baggage_item(...) return nothing end
function span_methods:release(...) end

local OPTIONS = {
  {"start_time_ns", "number", "invalid start time"}, {"span_kind", "number", "invalid start kind"},
  {"should_sample", "boolean", "invalid sampled"}, {"attributes", "table", "invalid attributes"},
}

local function check_options(options, level)
  if options == nil then return {} end
  if type(options) ~= "table" then error("invalid options type", level) end
  for i = 1, #OPTIONS do
    local name, kind, message = OPTIONS[i][1], OPTIONS[i][2], OPTIONS[i][3]
    if options[name] ~= nil and type(options[name]) ~= kind then error(message, level) end
  end
  return options
end

-- Whether a trace is in the sample. The first bytes of its id are a number, of which this share is.
local function sampled(trace_id, rate)
  if type(rate) ~= "number" then return nil, "invalid fraction" end
  if rate >= 1 then return true end
  if rate <= 0 then return false end
  if #trace_id < 8 then return nil, "sampling needs trace ID to be longer than 8 bytes to work" end
  local share = 0
  for i = 1, 8 do share = (share + byte(trace_id, i)) / 256 end
  return share < rate
end

local function create_span(tracer, options, level)
  options = check_options(options, level)
  local parent = options.parent or tracer and tracer.active_span()
  local trace_id = parent and parent.trace_id or options.trace_id or random(16)
  local in_sample = options.should_sample
  if parent and parent.should_sample ~= nil then
    in_sample = parent.should_sample
  elseif in_sample == nil then
    local err
    if tracer then in_sample, err = tracer.sampler(trace_id) end
    if err then kong.log.err("sampler failure: ", err) end
    in_sample = in_sample or false
  end
  return setmetatable({
    tracer = tracer, parent = parent, parent_id = parent and parent.span_id or options.parent_id,
    span_id = random(8), trace_id = trace_id, kind = options.span_kind or 1, should_sample = in_sample,
  }, span_methods)
end

local function link_span(tracer, span, name, options, level)
  if type(tracer) ~= "table" then error("invalid tracer", level) end
  options = check_options(options, level)
  span.tracer = span.tracer or tracer
  span.start_time_ns = options.start_time_ns or now()
  span.attributes, span.name, span.linked = options.attributes, name, true
  local spans = tracer.get_spans()
  local number = spans[0] + 1
  spans[0], spans[number] = number, span
  return span
end

local silent_tracer = {
  name = "noop", spans_table_key = "noop",
  start_span = silent_span, create_span = silent_span,
  link_span = nothing, init_spans = nothing, get_spans = nothing, get_root_span = nothing, active_span = nothing,
  set_active_span = nothing, process_span = nothing, set_should_sample = nothing, get_sampling_decision = nothing,
}

-- Phases in which a request can have spans.
local SPANS = P.certificate + P.rewrite + P.access + P.response + P.header_filter + P.body_filter + P.log
local LOG, LOG_LIST = SB.phases("log")
local tracer_methods, tracers = {}, {}
tracer_methods.__index = tracer_methods

local function new_tracer(name, options, ...)
  name = name or "default"
  local namespace = options and options.namespace or "KONG"
  local known = tracers[name]
  if known then return known end
  if options and options.noop then return silent_tracer end
  local rate = options and options.sampling_rate or 1
  local active = namespace .. "_active_span"
  local self = {name = name, active_span_key = active, spans_table_key = namespace .. "_SPANS"}
  self.sampler = function(trace_id, own, ...) return sampled(trace_id, own or rate) end
  self.active_span = function(...)
    if band(cx.nginx, SPANS) ~= 0 then return ngx.ctx[active] end
  end
  self.set_active_span = function(span, ...)
    if band(cx.nginx, SPANS) == 0 then return end
    if span then span.active = true end
    ngx.ctx[active] = span
  end
  self.start_span = function(span_name, span_options, ...)
    if band(cx.nginx, SPANS) == 0 then return silent end
    if type(span_name) ~= "string" or span_name == "" then error("invalid span name", 2) end
    local span = create_span(self, span_options, 3)
    link_span(self, span, span_name, span_options, 3)
    return span
  end
  self.create_span = function(tracer, span_options, ...) return create_span(tracer, span_options, 3) end
  self.link_span = function(tracer, span, span_name, span_options, ...)
    return link_span(tracer, span, span_name, span_options, 3)
  end
  self.init_spans = function(...)
    local spans = {[0] = 0}
    ngx.ctx[self.spans_table_key] = spans
    return spans
  end
  self.get_spans = function(...) return ngx.ctx[self.spans_table_key] or self.init_spans() end
  self.get_root_span = function(...) return self.get_spans()[1] end
  self.process_span = function(processor, ...)
    if band(cx.phase, LOG) == 0 then wrong_phase(LOG_LIST, nil, 3) end
    if type(processor) ~= "function" then error("processor must be a function", 2) end
    local spans = self.get_spans()
    for i = 1, spans[0] do
      local span = spans[i]
      if span.tracer and span.tracer.name == name then processor(span, ...) end
    end
  end
  self.set_should_sample = function(_, should_sample, ...)
    local spans = self.get_spans()
    for i = 1, spans[0] do spans[i].should_sample = should_sample end
  end
  self.get_sampling_decision = function(_, of_parent, own, ...)
    local root = self.get_root_span()
    if not root or root.attributes and root.attributes["kong.propagation_only"] then return false end
    if of_parent == false then return false end
    local decision, err = self.sampler(root.trace_id, own)
    if err then kong.log.err("sampler failure: ", err) end
    return decision or false
  end
  tracers[name] = setmetatable(self, tracer_methods)
  return self
end

local function set_global_tracer(tracer, ...)
  if type(tracer) ~= "table" or getmetatable(tracer) ~= tracer_methods and tracer.name ~= "noop" then
    error("invalid tracer", 2)
  end
  kong.tracing = tracer
end

tracer_methods.new, silent_tracer.new = new_tracer, new_tracer
tracer_methods.set_global_tracer, silent_tracer.set_global_tracer = set_global_tracer, set_global_tracer
tracer_methods.__call = function(_, ...) return (new_tracer(...)) end
setmetatable(silent_tracer, {__call = tracer_methods.__call, __newindex = nothing})

-- The tracer of the gateway. Its first span stands for the root span of the request.
gateway = new_tracer("instrument")

gateway.init_spans = function(...)
  local trace_id
  if functions.trace_id(cx) == 1 then
    trace_id = gsub(ffi_string(cx.ptr, cx.len), "%x%x", function(digits) return char(tonumber(digits, 16)) end)
  end
  local root = setmetatable({
    tracer = gateway, name = "kong", kind = 2, is_root = true, linked = true, attributes = {}, start_time_ns = now(),
    trace_id = trace_id or random(16), span_id = random(8), should_sample = functions.trace_is_recorded(cx) == 1,
  }, span_methods)
  local spans = {[0] = 1, root}
  ngx.ctx[gateway.spans_table_key] = spans
  gateway.set_active_span(root)
  return spans
end
gateway.active_span = function(...)
  if band(cx.nginx, SPANS) == 0 then return end
  gateway.get_spans()
  return ngx.ctx[gateway.active_span_key]
end

-- `kong.tracing` is chosen when it is first used, because the setting is known only with a node.
local chosen
local function current()
  if chosen then return chosen end
  local code = functions.trace_is_on(cx)
  if code < 0 then return silent_tracer end
  chosen = code == 1 and gateway or silent_tracer
  return chosen
end

kong.tracing = setmetatable({}, {
  __index = function(_, key) return current()[key] end, __call = tracer_methods.__call, __newindex = nothing,
})

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
