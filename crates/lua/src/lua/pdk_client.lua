-- `kong.client`: who sends the request. Source: kong/pdk/client.lua.
local SB = ...
local functions, cx = SB.functions, SB.cx
local ffi_string = require("ffi").string
local band, type, error = bit.band, type, error
local wrong_phase, failed, json = SB.wrong_phase, SB.failed, SB.json
local CERTIFICATE = SB.phase.certificate

local client = {}
kong.client = client

local AUTH, AUTH_LIST = SB.phases("access, response, header_filter, body_filter, log")
local ACCESS, ACCESS_LIST = SB.phases("access")

-- Makes a function of a reader that Kong offers in every phase with a request.
local function anywhere(name)
  local read = name:find("port", 1, true) and SB.number_reader(name) or SB.text_reader(name)
  return function(...)
    SB.require_phase()
    if cx.phase == CERTIFICATE then error("API disabled in the current context") end
    return read()
  end
end

client.get_ip = anywhere("peer_ip")
client.get_port = anywhere("peer_port")
client.get_forwarded_ip = anywhere("client_ip")

-- A trusted proxy may tell an address without a port.
local port = anywhere("client_port")
client.get_forwarded_port = function(...)
  local number = port()
  if number == 0 then return nil end
  return number
end

-- Returns the table of an entity of the request. The same request gets the same table.
local function entity_reader(name, id_name)
  local read, id = SB.text_reader(name), SB.text_reader(id_name)
  return function(...)
    local current = id()
    if not current then return nil end
    local context = SB.context()
    local known = context[name]
    if known and known.id == current then return known end
    local text = read()
    if not text then return nil end
    local entity = json.read(text)
    context[name] = entity
    return entity
  end
end
SB.entity_reader = entity_reader

local consumer_id, credential_id = SB.text_reader("consumer_id"), SB.text_reader("credential")
local known_consumer = entity_reader("consumer", "consumer_id")

-- Returns what `authenticate` was called with, unless another plugin has authenticated the request since then.
local function authenticated(...)
  if cx.context == 0 then return nil end
  local given = SB.context().authenticated
  if given and given.consumer_id == consumer_id() and given.credential_id == credential_id() then return given end
  return nil
end

client.get_consumer = function(...)
  if band(cx.phase, AUTH) == 0 then wrong_phase(AUTH_LIST, nil, 3) end
  local given = authenticated()
  if given then return given.consumer end
  return (known_consumer())
end

client.get_credential = function(...)
  if band(cx.phase, AUTH) == 0 then wrong_phase(AUTH_LIST, nil, 3) end
  local given = authenticated()
  if given then return given.credential end
  if not credential_id() then return nil end
  local code = functions.credential(cx)
  if code == 0 then return nil end
  if code ~= 1 then failed(code) end
  local credential = json.read(ffi_string(cx.ptr, cx.len))
  credential.ws_id = nil
  return credential
end

local UUID = ("%x"):rep(8) .. ("%-%x%x%x%x"):rep(3) .. "%-" .. ("%x"):rep(12)
local function is_uuid(text)
  return #text == 36 and text:find("^" .. UUID .. "$") ~= nil
end
SB.is_uuid = is_uuid

client.load_consumer = function(id, by_username, ...)
  if band(cx.phase, AUTH) == 0 then wrong_phase(AUTH_LIST, nil, 3) end
  if type(id) ~= "string" then error("consumer_id must be a string", 2) end
  local consumers = kong.db.consumers
  if is_uuid(id) then
    local consumer, err = consumers:select({id = id})
    if consumer or err then return consumer, err end
  elseif not by_username then
    error("cannot load a consumer with an id that is not a uuid", 2)
  end
  if not by_username then return nil end
  local consumer, err = consumers:select_by_username(id)
  return consumer, err
end

local function id_text(id)
  return (type(id) == "string" or type(id) == "number") and tostring(id) or nil
end

client.authenticate = function(consumer, credential, ...)
  if band(cx.phase, ACCESS) == 0 then wrong_phase(ACCESS_LIST, nil, 3) end
  if consumer ~= nil and type(consumer) ~= "table" then error("consumer must be a table or nil", 2) end
  if credential ~= nil and type(credential) ~= "table" then error("credential must be a table or nil", 2) end
  if consumer == nil and credential == nil then
    error("either credential or consumer must be provided", 2)
  end
  local shown = consumer and json.write({
    id = consumer.id, username = consumer.username, custom_id = consumer.custom_id,
  }) or ""
  local told = credential and json.write({id = id_text(credential.id), consumer_id = id_text(credential.consumer_id)}) or ""
  local code = functions.authenticate(cx, shown, #shown, told, #told)
  if code < 0 then failed(code) end
  SB.context().authenticated = {
    consumer = consumer, credential = credential,
    consumer_id = consumer_id(), credential_id = credential_id(),
  }
end

-- Returns the scheme of a request, as a trusted proxy in front tells it or as it was received.
local scheme, trusted, is_grpc = SB.text_reader("scheme"), SB.code_reader("trusted_peer"), SB.code_reader("is_grpc")
local function client_scheme(allow_terminated)
  if not allow_terminated or scheme() == "https" or trusted() ~= 1 then return scheme() end
  local told = kong.request.get_headers()["x-forwarded-proto"]
  if type(told) == "table" then return nil, "Only one X-Forwarded-Proto header allowed" end
  return told or scheme()
end

client.get_protocol = function(allow_terminated, ...)
  if band(cx.phase, AUTH) == 0 then wrong_phase(AUTH_LIST, nil, 3) end
  local route = SB.route()
  if not route then return nil, "No active route found" end
  local protocols = route.protocols or {}
  if #protocols == 1 then return protocols[1] end
  local found, err = client_scheme(allow_terminated)
  if not found then return nil, err end
  if is_grpc() == 1 then
    for i = 1, #protocols do
      if protocols[i] == "grpc" or protocols[i] == "grpcs" then
        return found == "https" and "grpcs" or "grpc"
      end
    end
  end
  return found
end
