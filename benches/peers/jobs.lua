-- Creates jobs with wrk: the same program makes the load for every side that is measured.
--
--   wrk -t1 -c CONNECTIONS -d LIMIT -s jobs.lua URL -- FIRST COUNT CREATE [FOLLOW ENDED]
--
-- CREATE is the whole text of a request, in which {job-id} stands for an id of the same length; ids have numbers from
-- FIRST on. COUNT of these are sent, and wrk ends with the last answer. With FOLLOW, for one connection, that request
-- is sent after each creation, and again until its answer contains ENDED; {version} in it stands for the version in
-- the last ETag.
-- The last line of the output is one JSON object.

local ffi = require("ffi")
ffi.cdef[[
  typedef struct { long sec; long nsec; } moment;
  int clock_gettime(int clock, moment *now);
  int getpid(void);
  int kill(int pid, int signal);
]]

local MONOTONIC, SIGINT = 1, 2
local now_is = ffi.new("moment")
local threads = {}

local function now_us()
  ffi.C.clock_gettime(MONOTONIC, now_is)
  return tonumber(now_is.sec) * 1e6 + tonumber(now_is.nsec) / 1e3
end

local function job_id(number)
  return string.format("j%07d", number)
end

local function filled(text, values)
  return (text:gsub("{([%a-]+)}", values))
end

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  first, count, create, follow, ended = tonumber(args[1]), tonumber(args[2]), args[3], args[4], args[5]
  sent, answered, first_us, took_us, lone_us = 0, 0, nil, nil, {}
  values, is_following, is_checked, failure = {}, false, false, nil
end

function request()
  if not is_checked then
    -- wrk asks for the first request twice, and only looks at it once.
    is_checked = true
    return filled(create, {["job-id"] = job_id(first)})
  end
  if is_following then return filled(follow, values) end
  -- Nothing is left to send on this connection: an empty text leaves it open and silent.
  if sent == count then return "" end
  values["job-id"] = job_id(first + sent)
  sent = sent + 1
  begun_us = now_us()
  first_us = first_us or begun_us
  return filled(create, values)
end

local function finish()
  took_us = now_us() - first_us
  wrk.thread:stop()
  ffi.C.kill(ffi.C.getpid(), SIGINT) -- wrk itself sleeps until its time is over.
end

function response(status, headers, body)
  if status < 200 or status > 299 then
    failure = string.format("status %d: %s", status, body)
    return finish()
  end
  if follow and not (is_following and body:find(ended, 1, true)) then
    is_following = true
    local etag = headers["etag"]
    values.version = etag and etag:match("%d+") or values.version
    return
  end
  is_following = false
  answered = answered + 1
  lone_us[answered] = now_us() - begun_us -- This has a meaning with one connection alone.
  if answered == count then finish() end
end

function done(summary, latency, requests)
  local thread = threads[1]
  local problem = thread:get("failure")
  if problem or thread:get("answered") < thread:get("count") then
    local errors = summary.errors
    io.stderr:write(string.format("%s; %d of %d answered, %d errors of sockets\n", problem or "not all were answered",
      thread:get("answered"), thread:get("count"), errors.connect + errors.read + errors.write))
    os.exit(1)
  end
  local lone = thread:get("lone_us")
  table.sort(lone)
  print(string.format('{"seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "lone_p50_ms": %.3f, "cpu_s": %.3f}',
    thread:get("took_us") / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    lone[math.ceil(#lone / 2)] / 1e3, os.clock()))
end
