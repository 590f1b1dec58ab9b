-- Changes leases of one partition, as its owner.
--
-- KEYS  1: ends of leases (sorted set: attempt by the millisecond it ends)
--       2: tasks of leases (hash: attempt to session/task)
--       3: the newest epoch that was seen
-- ARGV  1: the caller's epoch, then for each change three: attempt, session/task, duration in ms;
--       an empty duration drops the lease; one behind a `>` is for a lease that is not there,
--       and one that is there lasts at least half of it
--
-- The clock is this server's, for whoever sets and for whoever judges.
local seen = tonumber(redis.call('GET', KEYS[3]) or '0')
local mine = tonumber(ARGV[1])
if mine < seen then
  return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is behind ' .. seen)
end
if mine > seen then
  redis.call('SET', KEYS[3], ARGV[1])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV, 3 do
  local attempt, task, duration = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if duration == '' then
    redis.call('ZREM', KEYS[1], attempt)
    redis.call('HDEL', KEYS[2], attempt)
  elseif string.sub(duration, 1, 1) == '>' then
    local full = tonumber(string.sub(duration, 2))
    local ends = tonumber(redis.call('ZSCORE', KEYS[1], attempt) or '0')
    if ends == 0 then
      redis.call('ZADD', KEYS[1], now + full, attempt)
      redis.call('HSET', KEYS[2], attempt, task)
    elseif ends < now + math.floor(full / 2) then
      redis.call('ZADD', KEYS[1], now + math.floor(full / 2), attempt)
    end
  else
    redis.call('ZADD', KEYS[1], now + tonumber(duration), attempt)
    redis.call('HSET', KEYS[2], attempt, task)
  end
end
return now
