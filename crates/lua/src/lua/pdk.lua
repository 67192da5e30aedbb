-- The table `kong`: versions, tables of a request, and helpers. Source: kong/pdk/{init,ctx,table,ip,nginx,node,plugin}.lua.
local SB = ...
local cx = SB.cx
local error, type, setmetatable, rawset = error, type, setmetatable, rawset

kong = {
  version = "3.9.1",
  version_num = 3009001,
  pdk_major_version = 3,
  pdk_version = "3.0.0",
}

-- Values of the request that runs.
kong.ctx = setmetatable({}, {
  __index = function(_, name)
    if name == "shared" then return SB.shared() end
    if name == "plugin" then
      if cx.plugin == 65535 then return nil end
      local plugins = SB.context().plugins
      local own = plugins[cx.plugin]
      if not own then
        own = {}
        plugins[cx.plugin] = own
      end
      return own
    end
  end,
})

local new, clear = table.new, table.clear
kong.table = {
  new = function(narr, nrec, ...) return new(narr or 0, nrec or 0) end,
  clear = function(t, ...) return clear(t) end,
  merge = function(a, b, ...)
    local merged = {}
    if a then for k, v in next, a do merged[k] = v end end
    if b then for k, v in next, b do merged[k] = v end end
    return merged
  end,
}

kong.ip = {is_trusted = function(ip, ...)
  local text = type(ip) == "string" and ip or ""
  return SB.functions.is_trusted(cx, text, #text) == 1
end}

local plugin_id = SB.text_reader("plugin_id")
kong.plugin = {get_id = function(...)
  if cx.phase == 0 then return nil end
  return plugin_id()
end}
