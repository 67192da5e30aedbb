-- Functions of `ngx` that Kong replaces by its own, so that their errors name Kong's file. Source: kong/globalpatches.lua.
local SB = ...
local cx, constants, own = SB.cx, SB.constants, SB.ngx
local type, error, tostring = type, error, tostring
local P = constants.phase

-- Most headers and arguments that are read without an explicit number.
local MOST = 100

local function check()
  SB.check_request(3)
end

-- Returns the number of items that may be read: 0 is all of them.
local function most(max)
  if max == nil then return MOST end
  return max
end

own.req = {}
own.req.get_headers = function(max, raw, ...)
  check()
  local headers, truncated = SB.headers(constants.list.request_headers, most(max), raw)
  return headers, truncated
end

own.req.get_uri_args = function(max, ...)
  check()
  local args, truncated = SB.args(own.var.args or "", most(max))
  return args, truncated
end

own.req.get_post_args = function(max, ...)
  check()
  if not SB.body_is_read() then
    error("no request body found; maybe you should turn on lua_need_request_body?")
  end
  if SB.body_is_missing() then return nil, "request body in temp file not supported" end
  local args, truncated = SB.args(own.req.get_body_data() or "", most(max))
  return args, truncated
end

own.decode_args = function(text, max, ...)
  if type(text) ~= "string" then
    if type(text) ~= "number" then
      error("bad argument #1 to 'decode_args' (string expected, got " .. type(text) .. ")")
    end
    text = tostring(text)
  end
  local args, truncated = SB.args(text, most(max))
  return args, truncated
end

-- Sockets come with custom plugins. Phases that forbid them say so.
local SOCKETS = SB.CONTENT + SB.TIMER + P.certificate
own.socket = {}
for _, name in ipairs{"tcp", "udp", "connect", "stream"} do
  own.socket[name] = function(...)
    SB.check_phase(SOCKETS, 2)
    error("ngx.socket." .. name .. " is not supported")
  end
end
