'use strict';
// What the tables of measurements have in common.

const { execFileSync } = require('node:child_process');
const os = require('node:os');

// The median, and the lowest and the highest.
function cell(figures, key, decimals) {
  const sorted = figures.map((figure) => figure[key]).sort((a, b) => a - b);
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  const shown = (value) => value.toLocaleString('en', digits);
  const median = shown(sorted[(sorted.length - 1) >> 1]);
  return sorted.length === 1 ? median : `${median} (${shown(sorted[0])} to ${shown(sorted.at(-1))})`;
}

// The machine, and the disk under a directory.
function machine(space) {
  const disk = execFileSync('df', ['--output=source,fstype', space], { encoding: 'utf8' }).trim().split('\n').pop();
  const [[{ model }], { length }] = [os.cpus(), os.cpus()];
  return `${length} processors (${model}), Linux ${os.release()}, data on ${disk.replace(/\s+/g, ' ')}`;
}

// The table of all sides with their figures. A row has what it says, the key of its figure, and the decimals.
function table(all, rows) {
  const row = (cells) => `| ${cells.join(' | ')} |`;
  return [
    row(['', ...all.map(({ side }) => side.title)]),
    row(['', ...all].map(() => '---')),
    row(['versions', ...all.map(({ side }) => side.versions)]),
    row(['what is on the disk when an answer comes', ...all.map(({ side }) => side.durability)]),
    ...rows.map(([name, key, decimals]) => row([name, ...all.map(({ figures }) => cell(figures, key, decimals))])),
  ].join('\n');
}

module.exports = { machine, table };
