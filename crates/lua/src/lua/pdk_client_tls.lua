-- `kong.client.tls`: TLS between the client and the gateway. Source: kong/pdk/client/tls.lua.
local SB = ...
local functions, cx = SB.functions, SB.cx
local band, type, error, sub = bit.band, type, error, string.sub
local wrong_phase, json = SB.wrong_phase, SB.json

local tls = {}
kong.client.tls = tls

local C, C_LIST = SB.phases("certificate")
local CHAIN, CHAIN_LIST = SB.phases("rewrite, access, balancer, response, log")
local VERIFY, VERIFY_LIST = SB.phases("rewrite, access, balancer, response")
local HELLO_LIST = "client_hello"

-- Listeners always ask the client for a certificate, which it need not send.
tls.request_client_certificate = function(...)
  if band(cx.phase, C) == 0 then wrong_phase(C_LIST, nil, 3) end
  return true
end

-- Sessions of clients with certificates are never resumed, so there is nothing to turn off.
tls.disable_session_reuse = function(...)
  if band(cx.phase, C) == 0 then wrong_phase(C_LIST, nil, 3) end
  return true
end

tls.disable_http2_alpn = function(...)
  wrong_phase(HELLO_LIST, nil, 3)
end

local is_tls = SB.code_reader("is_tls")
tls.get_full_client_certificate_chain = function(...)
  if band(cx.phase, CHAIN) == 0 then wrong_phase(CHAIN_LIST, nil, 3) end
  if is_tls() ~= 1 then return nil, "connection is not TLS or TLS support for Nginx not enabled" end
  return nil
end

-- Only log records show the result.
tls.set_client_verify = function(value, ...)
  if band(cx.phase, VERIFY) == 0 then wrong_phase(VERIFY_LIST, nil, 3) end
  if type(value) ~= "string" then error("assertion failed!") end
  if value ~= "SUCCESS" and value ~= "NONE" and sub(value, 1, 7) ~= "FAILED:" then
    error("unknown client verify value: " .. value ..
      ' accepted values are: "SUCCESS", "NONE" or "FAILED:<reason>"', 2)
  end
  SB.context().ctx.CLIENT_VERIFY_OVERRIDE = value
  local name, text = "request.tls.client_verify", json.write(value)
  functions.log_field(cx, 2, 1, name, #name, text, #text)
end
