'use strict';
// BullMQ behind Fastify, as one would build an API for jobs with them. Two processes, so that two processors are used:
//
//   node bullmq-fastify.js api      POST /jobs {"id", "queue"} adds a job, GET /jobs/:queue/:id answers its state,
//                                   with ?wait=true when it has ended; GET /completed/:queue counts
//   node bullmq-fastify.js worker   completes the jobs of the queue `work`; nobody works on the queue `parked`
//
// PORT is that of the API, REDIS_PORT that of Redis, both on 127.0.0.1.

const { Queue, QueueEvents, Worker } = require('bullmq');
const fastify = require('fastify');

const HOST = '127.0.0.1';
const QUEUES = ['work', 'parked'];
const CONCURRENCY = 64;
const WAIT_MS = 30_000;
const connection = { host: HOST, port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null };

const text = { type: 'string' };
const STATE = { type: 'object', properties: { id: text, state: text } };
const ADD = {
  body: { type: 'object', required: ['id', 'queue'], properties: { id: text, queue: { enum: QUEUES } } },
  response: { 201: STATE },
};

// Waits until a job has ended. It listens to a queue from the first call on, as that costs Redis and the API time.
class Ends {
  #listeners = new Map();

  async wait(queue, job) {
    let events = this.#listeners.get(queue.name);
    if (!events) {
      events = new QueueEvents(queue.name, { connection });
      this.#listeners.set(queue.name, events);
    }
    await events.waitUntilReady();
    await job.waitUntilFinished(events, WAIT_MS);
  }
}

async function api() {
  const queues = new Map(QUEUES.map((name) => [name, new Queue(name, { connection })]));
  const ends = new Ends();
  const app = fastify();
  app.post('/jobs', { schema: ADD }, async (request, reply) => {
    const { id, queue } = request.body;
    const job = await queues.get(queue).add('job', {}, { jobId: id });
    reply.code(201);
    return { id: job.id, state: 'waiting' };
  });
  app.get('/jobs/:queue/:id', { schema: { response: { 200: STATE } } }, async (request) => {
    const queue = queues.get(request.params.queue);
    const job = await queue.getJob(request.params.id);
    if (!request.query.wait) return { id: job.id, state: await job.getState() };
    await ends.wait(queue, job); // It throws if the job failed.
    return { id: job.id, state: 'completed' };
  });
  app.get('/completed/:queue', async (request) => queues.get(request.params.queue).getJobCounts('completed'));
  await app.listen({ host: HOST, port: Number(process.env.PORT) });
}

function work() {
  const worker = new Worker('work', async () => {}, { connection, concurrency: CONCURRENCY });
  worker.on('error', (error) => console.error(error));
}

if (process.argv[2] === 'worker') work();
else api();
