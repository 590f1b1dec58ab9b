'use strict';
// Measures creating jobs over HTTP: Tenure, and what users would pick instead, in turns. README.md says how to run it.

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { cpuOf, cpuOfAll, start, until } = require('./processes');
const sides = require('./sides');
const { count, inRoom, inTurns } = require('./turns');

const CONNECTIONS = 64;
const WARM_UP = 2_000; // Enough for the compiler of Node to have seen everything.
const LONE = 500;
const RUN_S = 300;
const COMPLETE_MS = 300_000;
const SPACE = 1_000_000; // Ids of one run of the generator are apart from those of others by this.

const SIDES = {
  tenure: () => sides.tenure(path.resolve(process.env.TENURE ?? 'target/dist/tenure')),
  'bullmq-always': () => sides.bullmq('always'),
  'bullmq-everysec': () => sides.bullmq('everysec'),
  restate: () => sides.restate(),
};

// Rows of the table: what it says, the key of the figure, and its decimals.
const ROWS = [
  ['jobs created a second, none runs', 'parkedRate', 0],
  ['p50 of that request, ms', 'parkedP50', 2],
  ['p99 of that request, ms', 'parkedP99', 2],
  ['processor time of the servers a job created, µs', 'parkedCpu', 0],
  ['jobs created a second, while they run', 'workRate', 0],
  ['p50 of that request, ms', 'workP50', 2],
  ['p99 of that request, ms', 'workP99', 2],
  ['jobs a second, from the first request until all are completed', 'completedRate', 0],
  ['processor time of the servers a job completed, µs', 'workCpu', 0],
  ['a lone job: created, p50, ms', 'loneCreated', 2],
  ['a lone job: created and completed, p50, ms', 'loneCompleted', 2],
  ['processor time of the generator a request, µs', 'generatorCpu', 1],
  ['processor time of everything else meanwhile, s', 'others', 1],
];

// Runs the generator to its end, and returns what it measured.
function generate(dir, url, connections, args) {
  const script = path.join(__dirname, 'jobs.lua');
  const wrk = start(dir, 'wrk', 'wrk', ['-t1', '-c', connections, '-d', `${RUN_S}s`, '-s', script, url, '--', ...args]);
  return wrk.ended.then((code) => {
    const log = fs.readFileSync(path.join(dir, 'wrk.log'), 'utf8').trim();
    if (code !== 0) throw new Error(`wrk: ${code}\n${log}`);
    return JSON.parse(log.split('\n').pop());
  });
}

// What a side is while it is measured: its processes, and how many jobs have been created that run.
class Measured {
  #dir;
  #side;
  #runs = 0;
  #work = 0;

  constructor(dir, side) {
    this.#dir = dir;
    this.#side = side;
  }

  // Creates so many jobs in a queue over 64 connections, and waits until those that run are completed.
  async many(queue, count) {
    const [before, allBefore] = [this.#cpu(), cpuOfAll()];
    const load = await this.#generate(CONNECTIONS, count, [this.#side.create(queue)]);
    const answered = performance.now();
    if (queue === 'work') await this.#completed(count);
    const seconds = load.seconds + (performance.now() - answered) / 1e3;
    const [cpu, all] = [this.#cpu() - before, cpuOfAll() - allBefore];
    return { ...load, completedSeconds: seconds, cpu, others: all - cpu - load.cpu_s };
  }

  // Creates jobs one after another over one connection. Those that run are each waited for.
  lone(queue, count) {
    const { create, follow, ended } = this.#side;
    if (queue === 'work') this.#work += count;
    return this.#generate(1, count, [create(queue), ...(queue === 'work' ? [follow, ended] : [])]);
  }

  #generate(connections, count, args) {
    const first = SPACE * this.#runs++;
    return generate(this.#dir, this.#side.url, connections, [first, count, ...args]);
  }

  #completed(count) {
    this.#work += count;
    return until('all jobs completed', () => this.#side.allCompleted(this.#work), COMPLETE_MS);
  }

  #cpu() {
    return this.#side.servers.reduce((sum, server) => sum + cpuOf(server), 0);
  }
}

// Starts a side in an empty directory, and stops it when the measurement is done.
function started(side, space, measure) {
  return inRoom(side, space, async (dir) => measure(new Measured(dir, await side.start(dir))));
}

// All figures of a side, once. Single jobs are created by a process of their own, which has no other jobs.
async function measureOnce(side, space, jobs) {
  const [work, parked] = await started(side, space, async (measured) => {
    await measured.many('work', WARM_UP);
    return [await measured.many('work', jobs), await measured.many('parked', jobs)];
  });
  const [created, completed] = await started(side, space, async (measured) => {
    await measured.many('work', WARM_UP);
    return [await measured.lone('parked', LONE), await measured.lone('work', LONE)];
  });
  return {
    parkedRate: jobs / parked.seconds,
    parkedP50: parked.p50_ms,
    parkedP99: parked.p99_ms,
    parkedCpu: parked.cpu / jobs * 1e6,
    workRate: jobs / work.seconds,
    workP50: work.p50_ms,
    workP99: work.p99_ms,
    completedRate: jobs / work.completedSeconds,
    workCpu: work.cpu / jobs * 1e6,
    loneCreated: created.lone_p50_ms,
    loneCompleted: completed.lone_p50_ms,
    generatorCpu: parked.cpu_s / jobs * 1e6,
    others: parked.others + work.others,
  };
}

function generator() {
  return spawnSync('wrk', ['--version'], { encoding: 'utf8' }).stdout.split(' [')[0]; // It exits with 1.
}

inTurns({
  sides: SIDES,
  rows: ROWS,
  options: { jobs: { type: 'string', default: '20000' } },
  settings: ({ jobs }) => count('jobs', jobs, SPACE - 1),
  measure: measureOnce,
  about: (jobs) => [`${jobs} jobs over ${CONNECTIONS} connections, and ${LONE} lone ones.`],
  generator,
});
