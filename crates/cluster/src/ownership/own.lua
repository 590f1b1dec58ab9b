-- One poll of a node: says that it lives, renews the partitions it has, takes and gives others, and
-- answers who lives, who has what, who cannot take what, what time it is here, which features each of
-- those who live has, how far each partition's log was acknowledged to anybody, which features logs may
-- hold, and who was given up and had not left.
--
-- KEYS  1: live nodes (sorted set: node by the millisecond it is given up)
--       2: owners (hash: partition to node)
--       3: ends of ownership (hash: partition to millisecond)
--       4: failures (sorted set: partition, space, node that could not take it, by the millisecond
--          at which it is to be forgotten)
--       5: features of nodes (hash: node to names with commas between them)
--       6: how far logs were acknowledged (hash: partition to the sequence of a message); it only rises
--       7: features that logs may hold (hash: name to 1); it only grows
--       8: nodes that were given up and had not left (sorted set: node by the millisecond at which it was
--          given up), for a day, and 64 of them at most
-- ARGV  1: node, 2: milliseconds of a lease, 3: partitions of the cluster, 4: `lives`, `leaves` where
--       the node is to be forgotten, or `asks` where its last poll was not answered in time, so that this
--       one is no sign of life and renews nothing, 5: its features, 6: the features that the logs of its
--       partitions may hold, both as names with commas between them, then for each partition how far its log was acknowledged as this node knows, 0 if it does not, then for each
--       change two:
--       what and partition. `r` renews what is this node's or nobody's, `t` takes what has ended,
--       `-` lets go. `g` is followed by a third: the node that is given the partition; `x` by the
--       milliseconds for which this node could not take the partition, and it lets go.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local node, lease, partitions = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local function set(partition, owner)
  redis.call('HSET', KEYS[2], partition, owner)
  redis.call('HSET', KEYS[3], partition, now + lease)
end
local function let_go(partition)
  redis.call('HDEL', KEYS[2], partition)
  redis.call('HDEL', KEYS[3], partition)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZADD', KEYS[8], redis.call('ZSCORE', KEYS[1], name), name)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[8], '-inf', now - 86400000)
redis.call('ZREMRANGEBYRANK', KEYS[8], 0, -65)
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
if ARGV[4] == 'lives' then
  redis.call('ZADD', KEYS[1], now + lease, node)
  redis.call('HSET', KEYS[5], node, ARGV[5])
  redis.call('ZREM', KEYS[8], node)
elseif ARGV[4] == 'leaves' then
  redis.call('ZREM', KEYS[1], node)
  redis.call('ZREM', KEYS[8], node)
end
for name in string.gmatch(ARGV[6], '[^,]+') do
  redis.call('HSET', KEYS[7], name, 1)
end
local acknowledged = {}
for partition = 0, partitions - 1 do
  local known = redis.call('HGET', KEYS[6], partition) or '0'
  local told = ARGV[7 + partition]
  if tonumber(told) > tonumber(known) then
    redis.call('HSET', KEYS[6], partition, told)
    known = told
  end
  acknowledged[partition + 1] = known
end
local at = 7 + partitions
while at <= #ARGV do
  local what, partition = ARGV[at], ARGV[at + 1]
  local owner = redis.call('HGET', KEYS[2], partition)
  local ends = tonumber(redis.call('HGET', KEYS[3], partition) or '0')
  local is_mine = not owner or owner == node
  at = at + 2
  if what == 'r' and is_mine then
    set(partition, node)
  elseif what == 't' and (is_mine or ends <= now) then
    set(partition, node)
  elseif what == 'g' then
    if is_mine then
      set(partition, ARGV[at])
    end
    at = at + 1
  elseif what == 'x' then
    redis.call('ZADD', KEYS[4], now + tonumber(ARGV[at]), partition .. ' ' .. node)
    if is_mine then
      let_go(partition)
    end
    at = at + 1
  elseif what == '-' and is_mine then
    let_go(partition)
  end
end
local nodes = redis.call('ZRANGE', KEYS[1], 0, -1)
local features, lives = {}, {}
for place, name in ipairs(nodes) do
  features[place] = redis.call('HGET', KEYS[5], name) or ''
  lives[name] = true
end
for _, name in ipairs(redis.call('HKEYS', KEYS[5])) do
  if not lives[name] then
    redis.call('HDEL', KEYS[5], name)
  end
end
local owners = {}
for partition = 0, partitions - 1 do
  local owner = redis.call('HGET', KEYS[2], partition) or ''
  local ends = tonumber(redis.call('HGET', KEYS[3], partition) or '0')
  owners[#owners + 1] = owner
  owners[#owners + 1] = tostring(math.max(0, ends - now))
end
return {nodes, owners, redis.call('ZRANGE', KEYS[4], 0, -1), now, features, acknowledged,
  redis.call('HKEYS', KEYS[7]), redis.call('ZRANGE', KEYS[8], 0, -1, 'WITHSCORES')}
