'use strict';
// What is measured. A side says what it is, and starts itself in an empty directory. What it started then has
//
// - `servers`, all processes that belong to it, and `url`;
// - `create(queue)`, the request that creates a job in the queue `work` or `parked`. Jobs of the latter never run;
// - `follow`, the request that waits until a job of `work` has ended, and `ended`, what its last answer contains;
// - `allCompleted(count)`, whether so many jobs have been completed since the start.

const { execFileSync } = require('node:child_process');
const path = require('node:path');
const { fetchText, freePorts, start, until } = require('./processes');
const { dependencies } = require('./package.json');

const HOST = '127.0.0.1';
const CONCURRENCY = 64;
const JOB = '{job-id}'; // As long as the ids that jobs.lua puts there.
const SCRIPTS = __dirname;

// The whole text of a request to a port.
function request(port, method, target, { headers = {}, body } = {}) {
  const lines = [`${method} ${target} HTTP/1.1`, `Host: ${HOST}:${port}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  const text = body === undefined ? '' : JSON.stringify(body);
  if (text) lines.push('Content-Type: application/json', `Content-Length: ${Buffer.byteLength(text)}`);
  return `${lines.join('\r\n')}\r\n\r\n${text}`;
}

function firstLine(command, args) {
  return execFileSync(command, args, { encoding: 'utf8' }).split('\n')[0].trim();
}

function tenure(binary) {
  const session = '/v1/sessions/bench';
  return {
    title: 'Tenure',
    versions: `${firstLine(binary, ['--version'])}, \`tenure dev\`, handler \`noop\``,
    durability: 'the log of the task, a file each: fdatasync before answers, for a new one fsync of the directory too',
    async start(dir) {
      const [port] = await freePorts(1);
      const url = `http://${HOST}:${port}`;
      const args = ['dev', '--data', path.join(dir, 'data'), '--http', `${HOST}:${port}`, '-j', CONCURRENCY];
      const server = start(dir, 'tenure', binary, args);
      await until('tenure', () => fetchText(`${url}/readyz`));
      return {
        url,
        servers: [server],
        create: (queue) => request(port, 'POST', `${session}/tasks`, { body: task(queue) }),
        follow: request(port, 'GET', `${session}/tasks/${JOB}?wait=30s&since={version}`),
        ended: '"status":"completed","native_status":"completed"',
        allCompleted: async (count) => {
          const metrics = await fetchText(`${url}/metrics`);
          return ENDED.every((series) => counter(metrics, series) >= count);
        },
      };
    },
  };
}

// A task of one step. The pool of parked ones has no worker.
function task(queue) {
  const pool = queue === 'work' ? 'default' : 'parked';
  const step = { step_id: 'job', title: 'Job', handler: 'noop', worker_pool_id: pool };
  return { task_id: JOB, title: 'Job', steps: [step] };
}

// What is to count all jobs: tasks that ended in whatever way, and attempts that were completed.
const ENDED = [/^tenure_tasks_ended_total\{.* (\d+)$/m, /^tenure_attempts_ended_total\{.*"completed"\} (\d+)$/m];

function counter(metrics, series) {
  return Number(series.exec(metrics)?.[1] ?? 0);
}

const REDIS_SYNC = {
  always: 'Redis AOF, `appendfsync always`: fdatasync before answers, once for all commands of a turn of its loop',
  everysec: 'Redis AOF, `appendfsync everysec`: a power failure loses about the last second',
};

function bullmq(appendfsync) {
  const { bullmq: version, fastify, ioredis } = dependencies;
  const redis = firstLine('redis-server', ['--version']).match(/v=(\S+)/)[1];
  return {
    title: `BullMQ behind Fastify, ${appendfsync}`,
    versions: `BullMQ ${version}, Fastify ${fastify}, ioredis ${ioredis}, Redis ${redis}, Node ${process.version}`,
    durability: REDIS_SYNC[appendfsync],
    async start(dir) {
      const [port, redisPort] = await freePorts(2);
      const url = `http://${HOST}:${port}`;
      const args = ['--bind', HOST, '--port', redisPort, '--dir', dir, '--save', '', '--appendonly', 'yes'];
      const server = start(dir, 'redis', 'redis-server', [...args, '--appendfsync', appendfsync]);
      const env = { PORT: port, REDIS_PORT: redisPort, NODE_ENV: 'production' };
      const script = path.join(SCRIPTS, 'bullmq-fastify.js');
      const run = (role) => start(dir, role, process.execPath, [script, role], { env });
      const [api, worker] = [run('api'), run('worker')];
      await until('BullMQ', () => fetchText(`${url}/completed/work`));
      return {
        url,
        servers: [server, api, worker],
        create: (queue) => request(port, 'POST', '/jobs', { body: { id: JOB, queue } }),
        follow: request(port, 'GET', `/jobs/work/${JOB}?wait=true`),
        ended: '"state":"completed"',
        allCompleted: async (count) => JSON.parse(await fetchText(`${url}/completed/work`)).completed >= count,
      };
    },
  };
}

const RESTATE = `@restatedev/restate-server-linux-${process.arch}/bin/restate-server`;

function restate() {
  const binary = require.resolve(RESTATE);
  const config = execFileSync(binary, ['--dump-config'], { encoding: 'utf8' });
  const unsynced = config.includes('rocksdb-disable-wal-fsync = true');
  const sdk = dependencies['@restatedev/restate-sdk'];
  return {
    title: 'Restate',
    versions: `${firstLine(binary, ['--version'])}, SDK ${sdk} for Node ${process.version}`,
    durability: `RocksDB WAL of its log server, ${unsynced ? 'not synced' : 'synced'} before answers (its default)`,
    async start(dir) {
      const [ingress, admin, node, port] = await freePorts(4);
      const [url, adminUrl] = [`http://${HOST}:${ingress}`, `http://${HOST}:${admin}`];
      const env = {
        RESTATE_INGRESS__BIND_ADDRESS: `${HOST}:${ingress}`,
        RESTATE_ADMIN__BIND_ADDRESS: `${HOST}:${admin}`,
        RESTATE_BIND_ADDRESS: `${HOST}:${node}`,
        RESTATE_DISABLE_TELEMETRY: 'true',
      };
      const args = ['--no-logo', '--listen-mode', 'tcp', '--base-dir', path.join(dir, 'data'), '--node-name', 'bench'];
      const server = start(dir, 'restate', binary, args, { env });
      const script = path.join(SCRIPTS, 'restate-service.js');
      const serviceEnv = { PORT: port, NODE_ENV: 'production' };
      const service = start(dir, 'service', process.execPath, [script], { env: serviceEnv, ipc: true });
      const deployment = { uri: `http://${HOST}:${port}` };
      await until('Restate', () => fetchText(`${url}/restate/health`));
      await until('its service', () => fetchText(`${adminUrl}/deployments`, post(deployment)));
      const send = (query) => `/Jobs/run/send${query}`;
      return {
        url,
        servers: [server, service],
        // What is parked waits for its time: a service that cannot be reached would be tried again and again.
        create: (queue) => request(ingress, 'POST', send(queue === 'work' ? '' : '?delay=1h'), {
          headers: { 'Idempotency-Key': JOB }, body: { id: JOB },
        }),
        follow: request(ingress, 'GET', `/restate/invocation/Jobs/run/${JOB}/attach`),
        ended: '',
        // The server counts slowly, so it is asked only when the handler has run often enough.
        allCompleted: async (count) => await handled(service) >= count && await invocations(adminUrl) >= count,
      };
    },
  };
}

function post(body, headers = {}) {
  return { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) };
}

// How many times the handler of the service has run.
function handled(service) {
  return new Promise((resolve) => {
    service.once('message', resolve);
    service.send('how many');
  });
}

async function invocations(adminUrl) {
  const query = "select count(*) as completed from sys_invocation where status = 'completed'";
  const answer = await fetchText(`${adminUrl}/query`, post({ query }, { accept: 'application/json' }));
  return JSON.parse(answer).rows[0].completed;
}

module.exports = { bullmq, restate, tenure };
