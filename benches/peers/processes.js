'use strict';
// Starts programs, stops them by their ids, and reads what processor time they used.

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const TICKS_PER_SECOND = 100; // USER_HZ, which is 100 on all Linux that Tenure runs on.
const START_MS = 30_000;
const STOP_MS = 10_000;
const POLL_MS = 20;

const running = new Set();

// As many ports as asked for, which are free and all different.
async function freePorts(count) {
  const servers = Array.from({ length: count }, () => net.createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => new Promise((resolve) => server.once('listening', resolve))));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

// Starts a program whose output goes to a file in the directory. With `ipc` it has a channel to this process.
function start(dir, name, command, args, { env = {}, ipc = false } = {}) {
  const log = fs.openSync(path.join(dir, `${name}.log`), 'a');
  const stdio = ['ignore', log, log, ...(ipc ? ['ipc'] : [])];
  const child = spawn(command, args, { stdio, env: { ...process.env, ...env } });
  fs.closeSync(log);
  child.ended = new Promise((resolve) => {
    child.once('exit', resolve);
    child.once('error', resolve);
  });
  running.add(child);
  child.ended.then(() => running.delete(child));
  return child;
}

async function stop(child) {
  if (child.exitCode !== null || child.pid === undefined) return;
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await child.ended;
  clearTimeout(killer);
}

// Stops what was started last first.
async function stopAll() {
  for (const child of [...running].reverse()) await stop(child);
}

// Asks until the answer is true. Errors count as no answer: the program may not listen yet.
async function until(what, ask, limitMs = START_MS, pauseMs = POLL_MS) {
  const end = Date.now() + limitMs;
  for (;;) {
    const said = await Promise.resolve().then(ask).catch(() => false);
    if (said) return;
    if (Date.now() > end) throw new Error(`${what}: not within ${limitMs / 1000} s`);
    await sleep(pauseMs);
  }
}

async function fetchText(url, options) {
  const answer = await fetch(url, options);
  const body = await answer.text();
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${body}`);
  return body;
}

// Seconds of processor time that a process with all its threads has used.
function cpuOf(child) {
  const fields = fs.readFileSync(`/proc/${child.pid}/stat`, 'utf8').replace(/^.*\) /s, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

// Seconds in which the processors of the machine were busy, for anybody.
function cpuOfAll() {
  const [user, nice, system, , , irq, softirq] =
    fs.readFileSync('/proc/stat', 'utf8').split('\n')[0].trim().split(/\s+/).slice(1).map(Number);
  return (user + nice + system + irq + softirq) / TICKS_PER_SECOND;
}

module.exports = { cpuOf, cpuOfAll, fetchText, freePorts, start, stopAll, until };
