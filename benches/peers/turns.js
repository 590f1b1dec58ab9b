'use strict';
// Measures what is compared in turns, with the options that all comparisons have, and prints a table.

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { stopAll } = require('./processes');
const { machine, table } = require('./table');

const REPS_MAX = 1_000;

// The options that are given, which may be more than those of all comparisons.
function read(sides, more) {
  const { values } = parseArgs({
    options: {
      reps: { type: 'string', default: '5' },
      sides: { type: 'string', default: Object.keys(sides).join(',') },
      on: { type: 'string', default: 'target/peers' },
      ...more,
    },
  });
  const names = values.sides.split(',');
  const unknown = names.find((name) => !Object.hasOwn(sides, name));
  if (unknown !== undefined) throw new Error(`there is no side ${unknown}: ${Object.keys(sides).join(', ')}`);
  return { ...values, reps: count('reps', values.reps, REPS_MAX), names };
}

// A number of things, from one to the most that an option takes.
function count(name, text, most) {
  const number = Number(text);
  if (Number.isInteger(number) && number >= 1 && number <= most) return number;
  throw new Error(`--${name} is a whole number from 1 to ${most}`);
}

// Measures a side in an empty directory, and stops what was started for it. An error says what its programs wrote last.
async function inRoom(side, space, measure) {
  const dir = fs.mkdtempSync(path.join(space, 'run-'));
  try {
    return await measure(dir);
  } catch (error) {
    throw new Error(`${side.title}: ${error.message}\n${tails(dir)}`);
  } finally {
    await stopAll();
  }
}

function tails(dir) {
  const logs = fs.readdirSync(dir).filter((name) => name.endsWith('.log'));
  return logs.map((name) => `${name}: ${fs.readFileSync(path.join(dir, name), 'utf8').slice(-1_000)}`).join('\n');
}

// Measures all sides in turns, and prints what they are beside each other. A comparison has
//
// - `sides`, by name, each a function that returns the side: its `title`, `versions` and `durability`;
// - `rows` of the table, as `table.js` has them;
// - `options`, if it has more of them than all have, and `settings(options)`, which reads these;
// - `measure(side, space, settings)`, which returns the figures of one turn, and makes its files below `space`;
// - `about(settings)`, lines above the table, and `generator()`, what makes the load.
async function run({ sides, rows, options: more, settings: readSettings, measure, about, generator }) {
  const options = read(sides, more);
  const settings = readSettings?.(options);
  const all = options.names.map((name) => ({ side: sides[name](), figures: [] }));
  fs.mkdirSync(options.on, { recursive: true });
  // It is removed at the very end: file systems make files slowly for minutes after many were deleted.
  const space = fs.mkdtempSync(path.join(path.resolve(options.on), 'data-'));
  const remove = () => fs.rmSync(space, { recursive: true, force: true });
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => stopAll().then(remove).then(() => process.exit(130)));
  }
  try {
    for (let rep = 1; rep <= options.reps; rep += 1) {
      for (const { side, figures } of all) {
        figures.push(await measure(side, space, settings));
        console.error(`${rep}/${options.reps} ${side.title}: ${JSON.stringify(figures.at(-1))}`);
      }
    }
    const turns = `Repetitions, in turns: ${options.reps}. Each cell has the median (the lowest to the highest).`;
    console.log([...about(settings), turns, `${machine(space)}, ${generator()}`].join('\n'));
    console.log(`\n${table(all, rows)}`);
  } finally {
    remove();
  }
}

// The same, as all that a process does.
function inTurns(comparison) {
  run(comparison).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}

module.exports = { count, inRoom, inTurns };
