-- `kong.vault`: secrets from the environment, the only vault of Kong's open source edition.
-- Source: kong/pdk/vault.lua, kong/vaults/env/init.lua.
local SB = ...
local type, error, tonumber, tostring, next, pcall = type, error, tonumber, tostring, next, pcall
local sub, find, gsub, upper, match, gmatch = string.sub, string.find, string.gsub, string.upper, string.match, string.gmatch
-- User code in the sandbox has no `os.getenv`.
local getenv, json = os.getenv, SB.json
local unescape = SB.encoder("unescape_uri")

local vault = {}
kong.vault = vault

local BEGIN = "{vault://"
local function is_reference(value, ...)
  return type(value) == "string" and sub(value, 1, #BEGIN) == BEGIN and sub(value, -1) == "}"
end
vault.is_reference = is_reference

-- Returns the parts of a reference, or nil and an error.
local function parse(reference)
  local shown = " [" .. tostring(reference) .. "]"
  if not is_reference(reference) then return nil, "not a reference" .. shown end
  local rest, version, options = sub(reference, #BEGIN + 1, -2), nil, nil
  local hash = find(rest, "#", 1, true)
  if hash then
    version = tonumber(match(rest, "^%d+$", hash + 1), 10)
    if not version then return nil, "reference url has invalid version" .. shown end
    rest = sub(rest, 1, hash - 1)
  end
  local question = find(rest, "?", 1, true)
  if question then
    options = SB.args(sub(rest, question + 1), 100)
    rest = sub(rest, 1, question - 1)
  end
  local slash = find(rest, "/", 1, true)
  local name = slash and sub(rest, 1, slash - 1) or rest
  if name == "" then return nil, "reference url is missing host" .. shown end
  if not slash then return nil, "reference url is missing path" .. shown end
  local path = sub(rest, slash + 1)
  if path == "" then return nil, "reference url has empty path" .. shown end
  local resource, key
  if sub(path, -1) == "/" then
    resource = sub(path, 1, -2)
  else
    resource, key = match(path, "^(.*)/([^/]*)$")
    resource = resource or path
  end
  return {
    name = unescape(name), resource = unescape(resource), key = key and unescape(key) or nil,
    config = options, version = version, reference = reference,
  }
end

vault.parse_reference = function(reference, ...)
  local parsed, err = parse(reference)
  return parsed, err
end

-- Returns the configuration of the vault with this name or prefix.
local function config_of(name)
  if name == "env" then return {} end
  local entity = kong.db.vaults:select_by_prefix(name)
  if not entity then return nil, "could not find vault (" .. name .. ")" end
  if entity.name ~= "env" then return nil, "could not find vault (" .. entity.name .. ")" end
  return entity.config or {}
end

local function resolve(reference)
  local parsed, err = parse(reference)
  if not parsed then return nil, err end
  local config, problem = config_of(parsed.name)
  if not config then return nil, problem end
  local prefix = parsed.config and parsed.config.prefix or config.prefix
  if type(prefix) ~= "string" then prefix = "" end
  local name = upper((gsub(prefix .. parsed.resource, "-", "_")))
  if parsed.version == 2 then name = name .. "_PREVIOUS" end
  local value = getenv(name)
  if value == nil then return nil, "could not get value from external vault (no value found)" end
  local key = parsed.key
  if key == nil then return value end
  local fields, wrong = json.read(value)
  if type(fields) ~= "table" then
    return nil, "unable to json decode value (" .. name .. "): " .. (wrong or "not an object")
  end
  local field = fields[key]
  if field == nil then return nil, "subfield " .. key .. " not found in JSON secret" end
  if type(field) ~= "string" then
    return nil, "unexpected " .. type(field) .. " value in JSON secret for subfield " .. key
  end
  return field
end

vault.get = function(reference, ...)
  local value, err = resolve(reference)
  return value, err
end

-- Replaces the values that come from references by what they are now.
local function update(options)
  if type(options) ~= "table" or type(options["$refs"]) ~= "table" then return options end
  for name, reference in next, options["$refs"] do
    if type(reference) == "string" then
      options[name] = resolve(reference) or ""
    elseif type(reference) == "table" then
      local values = type(options[name]) == "table" and options[name] or {}
      for key, one in next, reference do values[key] = resolve(one) or "" end
      options[name] = values
    end
  end
  return options
end

vault.update = function(options, ...)
  return (update(options))
end

-- Calls a function with options. If it fails, their secrets may be old: they are read again, and it is called once more.
vault.try = function(callback, options, ...)
  local result, err = callback(options)
  if result then return result end
  if type(options) ~= "table" or type(options["$refs"]) ~= "table" then return nil, err end
  result, err = callback(update(options))
  return result, err
end

-- Nothing is kept, so there is nothing to warm up or to flush.
vault.warmup = function(...) end
vault.flush = function(...) end
vault.init_worker = function(...) end
