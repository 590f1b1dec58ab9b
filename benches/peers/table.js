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

module.exports = { cell, machine };
