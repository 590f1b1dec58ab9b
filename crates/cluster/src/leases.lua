-- Changes leases of one partition, as its owner: behind fence.lua.
--
-- KEYS  1: ends of leases (sorted set: session/task/attempt by the millisecond it ends)
-- ARGV  from 2 on, for each change two: session/task/attempt, duration in ms;
--       an empty duration drops the lease; one behind a `>` is for a lease that is not there, and
--       one that is there lasts at least half of it and at most all of it; one behind a `?` is for
--       a lease that is not there, and one that is there stays as it is
--
-- What is dropped is dropped last: a renewal may have crossed the end of its Attempt.
local set, drop = {}, {}
for at = 2, #ARGV, 2 do
  local member, duration = ARGV[at], ARGV[at + 1]
  if duration == '' then
    drop[#drop + 1] = member
  elseif string.sub(duration, 1, 1) == '>' then
    local full = tonumber(string.sub(duration, 2))
    local ends = tonumber(redis.call('ZSCORE', KEYS[1], member) or '0')
    local least = now + (ends == 0 and full or math.floor(full / 2))
    if ends < least or ends > now + full then
      set[#set + 1] = ends < least and least or now + full
      set[#set + 1] = member
    end
  elseif string.sub(duration, 1, 1) == '?' then
    if not redis.call('ZSCORE', KEYS[1], member) then
      set[#set + 1] = now + tonumber(string.sub(duration, 2))
      set[#set + 1] = member
    end
  else
    set[#set + 1] = now + tonumber(duration)
    set[#set + 1] = member
  end
end
if #set > 0 then
  redis.call('ZADD', KEYS[1], unpack(set))
end
if #drop > 0 then
  redis.call('ZREM', KEYS[1], unpack(drop))
end
return now
