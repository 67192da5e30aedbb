-- The check of functions that may be called in every phase, but not outside of one. Source: kong/pdk/private/phases.lua.
local SB = ...
local cx, error = SB.cx, error

function SB.require_phase(...)
  if cx.phase == 0 then error("no phase in ngx.ctx.KONG_PHASE") end
end
