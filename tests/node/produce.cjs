// Runs BullMQ or Bull for a test: reads steps from stdin, and writes what they return to stdout, as JSON.
const fs = require("node:fs");

const { library, connection, queue: name, prefix, steps } = JSON.parse(fs.readFileSync(0, "utf8"));
const library_ = require(library);
const Queue = library === "bullmq" ? library_.Queue : library_;
const options = library === "bullmq" ? { connection, prefix } : { redis: connection, prefix };
const queue = new Queue(name, options);

// Let a worker of the library run jobs until so many have failed or completed.
async function work(count, concurrency = 1) {
  let ended = 0;
  await new Promise((resolve) => {
    const count_one = (job) => job.finishedOn && ++ended >= count && resolve();
    const run = async (job) => {
      if (job.data.fail) throw new Error(job.data.fail);
    };
    if (library === "bullmq") {
      work.worker = new library_.Worker(name, run, { connection, prefix, concurrency });
      work.worker.on("failed", count_one);
      work.worker.on("completed", count_one);
    } else {
      queue.process("*", concurrency, run);
      queue.on("failed", count_one);
      queue.on("completed", count_one);
    }
  });
  if (work.worker) await work.worker.close();
}

const actions = {
  add: async (...call) => (await queue.add(...call)).id,
  schedule: async (...call) => (await queue.upsertJobScheduler(...call)).id,
  pause: () => queue.pause(),
  flow: async (tree) => {
    const producer = new library_.FlowProducer({ connection, prefix });
    await producer.add(tree);
    await producer.close();
  },
  counts: () => queue.getJobCounts(),
  schedules: async () => (library === "bullmq" ? await queue.getJobSchedulers() : await queue.getRepeatableJobs()),
  work,
};

(async () => {
  const answers = [];
  for (const [action, ...call] of steps) answers.push((await actions[action](...call)) ?? null);
  await queue.close();
  process.stdout.write(JSON.stringify(answers), () => process.exit(0));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
