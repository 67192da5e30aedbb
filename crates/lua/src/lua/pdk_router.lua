-- `kong.router`: the route and the service of the request. Source: kong/pdk/router.lua.
local SB = ...
local cx, band = SB.cx, bit.band
local wrong_phase = SB.wrong_phase

local router = {}
kong.router = router

local R, R_LIST = SB.phases("access, response, header_filter, body_filter, log")

SB.route = SB.entity_reader("route", "route_id")
local service = SB.entity_reader("service", "service_id")

router.get_route = function(...)
  if band(cx.phase, R) == 0 then wrong_phase(R_LIST, nil, 3) end
  return (SB.route())
end

router.get_service = function(...)
  if band(cx.phase, R) == 0 then wrong_phase(R_LIST, nil, 3) end
  return (service())
end
