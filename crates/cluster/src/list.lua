-- Leases of one partition, by the moment they end: {now, {session/task/attempt, end, ...}}.
--
-- KEYS  1: ends of leases, as leases.lua
-- ARGV  1: how many to pass over, 2: at most so many
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = ARGV[1] + ARGV[2] - 1
return {now, redis.call('ZRANGE', KEYS[1], ARGV[1], last, 'WITHSCORES')}
