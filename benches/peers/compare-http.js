'use strict';
// Measures creating jobs over HTTP: Tenure, and what users would pick instead, in turns. README.md says how to run it.

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { cpuOf, cpuOfAll, start, stopAll, until } = require('./processes');
const sides = require('./sides');
const { cell, machine } = require('./table');

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

const { values: options } = parseArgs({
  options: {
    jobs: { type: 'string', default: '20000' },
    reps: { type: 'string', default: '5' },
    sides: { type: 'string', default: Object.keys(SIDES).join(',') },
    on: { type: 'string', default: 'target/peers' },
  },
});

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
async function started(side, space, measure) {
  const dir = fs.mkdtempSync(path.join(space, 'run-'));
  try {
    return await measure(new Measured(dir, await side.start(dir)));
  } catch (error) {
    throw new Error(`${side.title}: ${error.message}\n${tails(dir)}`);
  } finally {
    await stopAll();
  }
}

// What the programs of a side wrote last.
function tails(dir) {
  const logs = fs.readdirSync(dir).filter((name) => name.endsWith('.log'));
  return logs.map((name) => `${name}: ${fs.readFileSync(path.join(dir, name), 'utf8').slice(-500)}`).join('\n');
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

function table(all) {
  const row = (cells) => `| ${cells.join(' | ')} |`;
  return [
    row(['', ...all.map(({ side }) => side.title)]),
    row(['', ...all].map(() => '---')),
    row(['versions', ...all.map(({ side }) => side.versions)]),
    row(['what is on the disk when an answer comes', ...all.map(({ side }) => side.durability)]),
    ...ROWS.map(([name, key, decimals]) => row([name, ...all.map(({ figures }) => cell(figures, key, decimals))])),
  ].join('\n');
}

function generator() {
  return spawnSync('wrk', ['--version'], { encoding: 'utf8' }).stdout.split(' [')[0]; // It exits with 1.
}

async function main() {
  const [jobs, reps] = [Number(options.jobs), Number(options.reps)];
  if (!(jobs > 0 && jobs < SPACE && reps > 0)) throw new Error('--jobs is 1 to 999999, --reps at least 1');
  const all = options.sides.split(',').map((name) => ({ side: SIDES[name](), figures: [] }));
  fs.mkdirSync(options.on, { recursive: true });
  // It is removed at the very end: file systems make files slowly for minutes after many were deleted.
  const space = fs.mkdtempSync(path.join(path.resolve(options.on), 'data-'));
  const remove = () => fs.rmSync(space, { recursive: true, force: true });
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => stopAll().then(remove).then(() => process.exit(130)));
  }
  try {
    for (let rep = 1; rep <= reps; rep += 1) {
      for (const { side, figures } of all) {
        figures.push(await measureOnce(side, space, jobs));
        console.error(`${rep}/${reps} ${side.title}: ${JSON.stringify(figures.at(-1))}`);
      }
    }
    console.log(`${jobs} jobs over ${CONNECTIONS} connections, and ${LONE} lone ones.`);
    console.log(`Repetitions, in turns: ${reps}. Each cell has the median (the lowest to the highest).`);
    console.log(`${machine(space)}, ${generator()}\n\n${table(all)}`);
  } finally {
    remove();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
