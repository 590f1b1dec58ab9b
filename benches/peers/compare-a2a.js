'use strict';
// Measures an agent that speaks A2A: Tenure, and what users would pick instead, in turns. README.md says how to run it.

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { freePorts, start, until } = require('./processes');
const { inRoom, inTurns } = require('./turns');

const SCRIPTS = path.join(__dirname, 'a2a');
const VISITS = ['agent', 'agent-lone', 'agent-stream'];
const RUN_MS = 300_000;

const GENERATOR = path.resolve(process.env.TENURE_BENCH ?? 'target/dist/tenure-bench-http');
const TENURE = path.join(path.dirname(GENERATOR), 'tenure');

const SIDES = {
  'tenure-cluster': () => tenure('Tenure, a cluster', ['--cluster'], 'NATS JetStream, `sync_interval: always`: '
    + 'fsync before answers'),
  tenure: () => tenure('Tenure, `tenure dev`', [], 'the log of the task, a file each: fdatasync before answers'),
  'a2a-sdk': a2aSdk,
  'a2akit-always': () => a2akit('always', 'Redis AOF, `appendfsync always`: fdatasync before answers'),
  'a2akit-everysec': () => a2akit('everysec', 'Redis AOF, `appendfsync everysec`: a power failure loses about the last '
    + 'second'),
};

// Rows of the table: what it says, the name that the generator gives the figure, and its decimals.
const ROWS = [
  ['messages a second, 64 at a time', 'agent', 0],
  ['p50 of these, ms', 'agent p50 of 64', 2],
  ['p99 of these, ms', 'agent p99 of 64', 2],
  ['a lone message, p50, ms', 'agent lone', 2],
  ['a lone message, p99, ms', 'agent lone p99', 2],
  ['from the report of an artifact to the event, p50, ms', 'agent stream', 2],
  ['from the report of an artifact to the event, p99, ms', 'agent stream p99', 2],
];

// Tenure, which the generator starts itself.
function tenure(title, args, durability) {
  const version = execFileSync(TENURE, ['--version'], { encoding: 'utf8' }).trim();
  return { title, versions: version, durability, measure: (dir) => generate(dir, [...args, '--on', dir]) };
}

function a2aSdk() {
  const python = path.resolve('target/peers/a2a-sdk/bin/python');
  return {
    title: 'a2a-sdk, in memory',
    versions: `${pinned('sdk', ['a2a-sdk', 'uvicorn', 'uvloop'])}, ${versionOf(python)}`,
    durability: 'nothing',
    async measure(dir) {
      const [port] = await freePorts(1);
      start(dir, 'sdk', python, [path.join(SCRIPTS, 'sdk_echo.py')], { env: { PORT: port } });
      return of(dir, port, '1.0');
    },
  };
}

function a2akit(appendfsync, durability) {
  const python = path.resolve('target/peers/a2a-akit/bin/python');
  const redis = execFileSync('redis-server', ['--version'], { encoding: 'utf8' }).match(/v=(\S+)/)[1];
  return {
    title: `a2akit on Redis, ${appendfsync}`,
    versions: `${pinned('akit', ['a2akit', 'redis', 'uvicorn', 'uvloop'])}, ${versionOf(python)}, Redis ${redis}`,
    durability,
    async measure(dir) {
      const [port, redisPort] = await freePorts(2);
      const args = ['--bind', '127.0.0.1', '--port', redisPort, '--dir', dir, '--save', '', '--appendonly', 'yes'];
      start(dir, 'redis', 'redis-server', [...args, '--appendfsync', appendfsync]);
      await until('Redis', () => execFileSync('redis-cli', ['-p', redisPort, 'ping'], { stdio: 'pipe' }).length > 0);
      const env = { PORT: port, REDIS_PORT: redisPort };
      start(dir, 'akit', python, [path.join(SCRIPTS, 'akit_echo.py')], { env });
      return of(dir, port, '0.3');
    },
  };
}

function versionOf(python) {
  return execFileSync(python, ['--version'], { encoding: 'utf8' }).trim();
}

// Packages with their versions, as the list of a peer has them.
function pinned(peer, packages) {
  const list = fs.readFileSync(path.join(SCRIPTS, `requirements-${peer}.txt`), 'utf8').split('\n');
  return packages.map((name) => list.find((line) => line.startsWith(`${name}==`)).replace('==', ' ')).join(', ');
}

// The figures of an agent at a port, once it answers.
async function of(dir, port, version) {
  const url = `http://127.0.0.1:${port}/`;
  await until('the agent', () => fetch(url).then((answer) => answer.status > 0));
  return generate(dir, ['--url', url, '--a2a', version]);
}

// Runs the generator to its end, and returns what it measured.
async function generate(dir, args) {
  const child = start(dir, 'generator', GENERATOR, [...VISITS, '--reps', '1', '--json', ...args]);
  const timer = setTimeout(() => child.kill('SIGKILL'), RUN_MS);
  const code = await child.ended;
  clearTimeout(timer);
  const log = fs.readFileSync(path.join(dir, 'generator.log'), 'utf8').trim();
  if (code !== 0) throw new Error(`the generator ended with ${code}`);
  const figures = log.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  return Object.fromEntries(figures.map(({ figure, median }) => [figure, median]));
}

inTurns({
  sides: SIDES,
  rows: ROWS,
  measure: (side, space) => inRoom(side, space, side.measure),
  about: () => [],
  generator: () => path.basename(GENERATOR),
});
