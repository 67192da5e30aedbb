-- Modules of OpenResty's libraries for hashes, ciphers and texts: resty.string, resty.md5, resty.sha*, resty.random, resty.aes.
local SB = ...
local functions, cx, constants = SB.functions, SB.cx, SB.constants
local ffi_string = require("ffi").string
local c_digest, c_random, c_cipher = functions.digest, functions.random, functions.cipher
local type, error, tostring, tonumber, setmetatable, concat, pairs =
  type, error, tostring, tonumber, setmetatable, table.concat, pairs
local format, gsub, byte, sub = string.format, string.gsub, string.byte, string.sub
local P = package.preload

local function check_text(v, at, name)
  if type(v) == "string" then return v end
  if type(v) == "number" then return tostring(v) end
  error("bad argument #" .. at .. " to '" .. name .. "' (string expected, got " .. (v == nil and "no value" or type(v)) .. ")", 3)
end

local function digest(number, text)
  if c_digest(cx, number, text, #text) ~= 1 then error("an internal error", 0) end
  return ffi_string(cx.ptr, cx.len)
end

-- A module whose objects take a text in pieces.
local function hash_module(name)
  local number = constants.hash[name]
  local methods = {}
  methods.__index = methods
  function methods:update(text, length)
    text = check_text(text, 1, "update")
    if length then text = sub(text, 1, length) end
    self.pieces[#self.pieces + 1] = text
    return true
  end
  function methods:final()
    return digest(number, concat(self.pieces))
  end
  function methods:reset()
    self.pieces = {}
    return true
  end
  methods.new = function() return setmetatable({pieces = {}}, methods) end
  return methods
end

for _, name in pairs({"md5", "sha1", "sha224", "sha256", "sha384", "sha512"}) do
  P["resty." .. name] = function() return hash_module(name) end
end

P["resty.sha"] = function() return {_VERSION = "0.16"} end

P["resty.string"] = function()
  local HEX = {}
  for i = 0, 255 do HEX[string.char(i)] = format("%02x", i) end
  return {
    _VERSION = "0.16",
    to_hex = function(text) return (gsub(check_text(text, 1, "to_hex"), ".", HEX)) end,
    atoi = function(text)
      local number = check_text(text, 1, "atoi"):match("^%s*([+-]?%d+)")
      return number and tonumber(number) or 0
    end,
  }
end

local MAX_RANDOM = 1048576
P["resty.random"] = function()
  return {
    _VERSION = "0.16",
    bytes = function(length, is_strong)
      length = tonumber(length)
      if not length or length < 0 or length > MAX_RANDOM then return nil end
      if c_random(cx, length) ~= 1 then return nil end
      return ffi_string(cx.ptr, cx.len)
    end,
  }
end

-- The key and the vector that OpenSSL makes of a password (EVP_BytesToKey).
local function derive(number, salt, password, rounds, key_length, iv_length)
  local made, block = "", ""
  while #made < key_length + iv_length do
    block = digest(number, block .. password .. salt)
    for _ = 2, rounds do block = digest(number, block) end
    made = made .. block
  end
  return sub(made, 1, key_length), sub(made, key_length + 1, key_length + iv_length)
end

local MAX_ROUNDS = 100000

P["resty.aes"] = function()
  local modes, hashes = constants.cipher, constants.hash
  local IV_LENGTH = {ecb = 0, gcm = 12}  -- of OpenSSL's derivation; others have 16
  local ENCRYPT, NO_PADDING = 256, 512
  local aes = {_VERSION = "0.16", hash = {}}
  aes.__index = aes
  -- A hash is known by its own table, as OpenSSL's is by its pointer.
  local numbers = {}
  for name, number in pairs(hashes) do
    local hash = function() return name end
    aes.hash[name] = hash
    numbers[hash] = number
  end

  function aes.cipher(size, mode)
    size, mode = size or 128, mode or "cbc"
    local is_known = (size == 128 or size == 192 or size == 256) and type(mode) == "string" and rawget(modes, mode)
    if not is_known then return nil end
    return {size = size, cipher = mode, method = "aes-" .. size .. "-" .. mode}
  end

  function aes.new(self, key, salt, cipher, hash, rounds, iv_length, padding)
    key = check_text(key, 1, "new")
    cipher = cipher or aes.cipher()
    hash = hash or aes.hash.md5
    rounds = rounds or 1
    if type(cipher) ~= "table" or not rawget(modes, cipher.cipher) then return nil, "invalid cipher" end
    local key_length = cipher.size / 8
    local made = {mode = modes[cipher.cipher], name = cipher.cipher}
    if padding == false then made.settings = NO_PADDING else made.settings = 0 end
    if salt and #salt ~= 8 then return nil, "salt must be 8 characters or nil" end
    if type(hash) == "table" then
      local wanted = iv_length or IV_LENGTH[cipher.cipher] or 16
      if type(hash.iv) ~= "string" then return nil, "iv is needed" end
      if cipher.cipher ~= "ecb" and #hash.iv ~= wanted then return nil, "bad iv length" end
      if hash.method then key = hash.method(key) end
      if #key ~= key_length then return nil, "bad key length" end
      made.key, made.iv = key, cipher.cipher == "ecb" and "" or hash.iv
    else
      if not numbers[hash] or type(rounds) ~= "number" or rounds < 1 or rounds > MAX_ROUNDS then
        return nil, "failed to generate key and iv"
      end
      made.key, made.iv = derive(numbers[hash], salt or "", key, rounds, key_length, IV_LENGTH[cipher.cipher] or 16)
      if cipher.cipher == "gcm" then
        -- The vector is as long as the key unless it is given. Bytes that were not derived are zeros.
        local wanted = iv_length or key_length
        made.iv = sub(made.iv .. ("\0"):rep(wanted - #made.iv), 1, wanted)
      end
    end
    return setmetatable(made, aes)
  end

  function aes:encrypt(text)
    text = check_text(text, 1, "encrypt")
    local secret = self.key .. self.iv
    if c_cipher(cx, self.mode + self.settings + ENCRYPT, #self.key, secret, #secret, text, #text) ~= 1 then
      return nil, "EVP_EncryptFinal_ex failed"
    end
    local sealed = ffi_string(cx.ptr, cx.len)
    if self.name == "gcm" then return {sealed, ffi_string(cx.ptr2, cx.len2)} end
    return sealed
  end

  function aes:decrypt(text, tag)
    text = check_text(text, 1, "decrypt")
    local secret = self.key .. self.iv
    if self.name == "gcm" then
      if type(tag) ~= "string" then return nil, "tag is needed" end
      secret = secret .. tag
    end
    if c_cipher(cx, self.mode + self.settings, #self.key, secret, #secret, text, #text) ~= 1 then
      return nil, "EVP_DecryptFinal_ex failed"
    end
    return ffi_string(cx.ptr, cx.len)
  end
  return aes
end

local make_uuid = SB.encoder("uuid")
P["kong.tools.uuid"] = function()
  local PATTERN = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$"
  return {
    uuid = function() return make_uuid("") end,
    is_valid_uuid = function(text) return type(text) == "string" and text:find(PATTERN) ~= nil end,
  }
end
