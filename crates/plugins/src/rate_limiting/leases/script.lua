-- The side of leases that runs in Redis: it applies the messages of one node about any number of counters. It is one
-- step for Redis, so that two nodes never get the same permit. docs/rate-limiting.md describes the protocol.
--
-- KEYS[1] is the hash of the nodes; the other keys are counters, one per message.
-- ARGV: the node, the lease time in milliseconds, the epoch that knows all totals of the node ('*' if it holds none),
-- then 9 values per message: period, limit, record, window (-1 for the current one), sequence, keep, used, waiting, ahead.
-- Reply: the time in microseconds, the epoch, 1 if nothing is granted yet, the number of nodes, then 6 values per message:
-- begin and end of the window in seconds, the sequence that the record has (-1 if the message's window is over), the
-- granted total, what is left, and 1 if no other node has unused permits, 2 if more is granted than the limit allows, or 3 if
-- the message has failed.

local SKEW = 2              -- Seconds by which the clocks of two masters may differ.
local FORGET = 3600 * 1000  -- Milliseconds of silence after which no node uses its record any more.
local POOL = 50             -- At most limit / POOL permits are unused, besides one for each node.
local DAY = 86400
local LENGTHS = {second = 1, minute = 60, hour = 3600, day = DAY}

local floor, max, min = math.floor, math.max, math.min
local node, lease, reported = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local seconds = tonumber(time[1])
local micros = seconds * 1000000 + tonumber(time[2])
local now = floor(micros / 1000)

local function text(number) return string.format('%.0f', number) end

-- Days from 1970 to the first day of a month. Source: "chrono-compatible low-level date algorithms", Howard Hinnant.
local function first_day(year, month)
  if month <= 2 then year = year - 1 end
  local of_era = year % 400
  local of_year = floor((153 * ((month + 9) % 12) + 2) / 5)
  return floor(year / 400) * 146097 + of_era * 365 + floor(of_era / 4) - floor(of_era / 100) + of_year - 719468
end

local function year_and_month(day)
  local shifted = day + 719468
  local of_era = shifted % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local month = floor((5 * of_year + 2) / 153)
  month = month < 10 and month + 3 or month - 9
  return year + floor(shifted / 146097) * 400 + (month <= 2 and 1 or 0), month
end

local function window(period, at)
  local length = LENGTHS[period]
  if length then
    local begin = at - at % length
    return begin, begin + length
  end
  local year, month = year_and_month(floor(at / DAY))
  if period == 'year' then return first_day(year, 1) * DAY, first_day(year + 1, 1) * DAY end
  local next_year = month == 12 and year + 1 or year
  return first_day(year, month) * DAY, first_day(next_year, month % 12 + 1) * DAY
end

-- The epoch changes with the process that is the master, and when the data is gone. Then grants that this master does
-- not know may exist: nothing is granted until nodes had the time to report.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local fields = redis.call('HGETALL', KEYS[1])
local nodes, epoch, last = {}, nil, 0
local newest = 0
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  if field == 'epoch' then epoch = value
  elseif field == 'last' then last = tonumber(value)
  else
    local seen, told = string.match(value, '^(%d+) (.*)$')
    nodes[field] = {seen = tonumber(seen), told = told}
    newest = max(newest, tonumber(seen))
  end
end
if not epoch or string.match(epoch, '^(%w+):') ~= run then
  epoch, last = run .. ':' .. text(now), newest
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'last', text(last))
end
local since = tonumber(string.match(epoch, ':(%d+)$'))
local told = (reported == '*' or reported == epoch) and epoch or '-'
nodes['n' .. node] = {seen = now, told = told}
redis.call('HSET', KEYS[1], 'n' .. node, text(now) .. ' ' .. told)
redis.call('PEXPIRE', KEYS[1], DAY * 1000)
local live, missing = 0, false
for field, other in pairs(nodes) do
  if other.seen > now - 4 * lease then live = live + 1 end
  if other.seen >= last - 2 * lease and other.told ~= epoch then missing = true end
  if now > since + 4 * lease and other.seen < now - 60000 then redis.call('HDEL', KEYS[1], field) end
end
local frozen = now < since + lease or (missing and now < since + 4 * lease)

local reply = {micros, epoch, frozen and 1 or 0, live}

local function answer(...)
  for _, value in ipairs({...}) do reply[#reply + 1] = value end
end

local function apply(key, at)
  local period, limit, record = ARGV[at], tonumber(ARGV[at + 1]), node .. ':' .. ARGV[at + 2]
  local wanted, sequence, keep = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local used, waiting, ahead = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
  local begin, ends = window(period, seconds)
  local records = redis.call('HGETALL', key)
  local stored
  for i = 1, #records, 2 do
    if records[i] == 'w' then stored = tonumber(records[i + 1]) end
  end
  -- A window does not begin again because the clock of a new master is a little behind.
  if stored and stored > begin and stored <= seconds + SKEW then begin, ends = window(period, stored) end
  -- The window of the message is over. Nothing is written, so that a late message makes no key.
  if wanted >= 0 and wanted ~= begin then return answer(begin, ends, -1, 0, 0, 0) end

  if stored ~= begin then
    records = {}
    redis.call('DEL', key)
    redis.call('HSET', key, 'w', text(begin))
    redis.call('PEXPIREAT', key, text((ends + SKEW) * 1000))
  end
  local own = {sequence = 0, granted = 0}
  local total, unused, spare, demand, gone = 0, 0, 0, 0, 0
  for i = 1, #records, 2 do
    local field, value = records[i], records[i + 1]
    if field == 'gone' then
      gone = tonumber(value)
      total = total + gone
    elseif field ~= 'w' then
      local its_sequence, granted, its_used, its_demand, seen = string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
      granted, seen = tonumber(granted), tonumber(seen)
      if field == record then
        own = {sequence = tonumber(its_sequence), granted = granted}
      else
        total = total + granted
        -- What a silent node holds is lost, but it does not make the slices of the others smaller.
        if seen > now - 4 * lease then
          local rest = granted - tonumber(its_used)
          unused = unused + rest
          spare = spare + max(0, rest - 1)
          demand = demand + tonumber(its_demand)
        elseif seen < now - FORGET then
          gone = gone + granted
          redis.call('HSET', key, 'gone', text(gone))
          redis.call('HDEL', key, field)
        end
      end
    end
  end
  -- A message that was repeated or overtaken changes nothing.
  if sequence > own.sequence then
    -- A message that was sent to a former master may name permits that this one has granted to others since.
    keep = min(keep, max(own.granted, used))
    local left = limit - total - keep
    local now_used = 0
    if not frozen and left > 0 then
      now_used = min(waiting, left)
      left = left - now_used
      local pool = max(0, floor(limit / POOL) - live)
      local share = ahead > 0 and floor(pool * ahead / (ahead + demand)) or 0
      local most = 1 + max(0, min(share, pool - spare))
      local slice = min(ahead, left, max(1, floor(left / (2 * live))), most - max(0, keep - used - waiting))
      keep = keep + now_used + max(0, slice)
    end
    own = {sequence = sequence, granted = keep}
    local value = {text(sequence), text(keep), text(min(keep, used + waiting)), text(ahead), text(now)}
    redis.call('HSET', key, record, table.concat(value, ' '))
  end
  local left = limit - total - own.granted
  local state = left < 0 and 2 or (unused == 0 and 1 or 0)
  answer(begin, ends, own.sequence, own.granted, max(0, left), state)
end

-- A key that holds something else, which another program has written, fails only its own message: 3 as the last value.
for i = 2, #KEYS do
  local before = #reply
  if not pcall(apply, KEYS[i], 4 + (i - 2) * 9) then
    for at = #reply, before + 1, -1 do reply[at] = nil end
    answer(0, 0, -1, 0, 0, 3)
  end
end
return reply
