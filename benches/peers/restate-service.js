'use strict';
// A service of Restate whose handler does nothing. PORT is where the server of Restate reaches it. Its parent, which
// started it with a channel, asks by any message how many times the handler ran.

// Node 20 does not have this yet.
Promise.withResolvers ??= function withResolvers() {
  let resolve, reject;
  const promise = new Promise((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
};

const http2 = require('node:http2');
const restate = require('@restatedev/restate-sdk');

let ran = 0;
const jobs = restate.service({ name: 'Jobs', handlers: { run: async () => { ran += 1; } } });

process.on('message', () => process.send(ran));
http2.createServer(restate.createEndpointHandler({ services: [jobs] })).listen(Number(process.env.PORT), '127.0.0.1');
