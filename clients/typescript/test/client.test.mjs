// Run by tests/test_typescript_client.py, which builds the package into QBULL_CLIENT and serves the API at QBULL_API.
import assert from "node:assert/strict";
import { test } from "node:test";

const { Qbull, JobFailed, JobCancelled, ProblemError, QbullError, ResultTimeout } = await import(process.env.QBULL_CLIENT);
const settings = { url: process.env.QBULL_API, token: process.env.QBULL_TOKEN };
const qbull = new Qbull(settings);

test("a job is enqueued, waited for, and returns its result", async () => {
  const job = await qbull.enqueue("email", "welcome", { to: "añn 🌍" }, { id: "a/b c", priority: 1 });
  const again = await qbull.enqueue("email", "welcome", { to: "añn 🌍" }, { id: "a/b c" });

  assert.deepEqual([job.id, job.created, again.created], ["a/b c", true, false]);
  assert.equal(await job.wait({ timeoutMs: 60_000 }), "welcome, añn 🌍");
  assert.equal((await qbull.job("email", "a/b c").info()).priority, 1);
});

test("a request whose answer was lost is sent again and adds one job", async () => {
  let lost = 0;
  const unlucky = async (...call) => {
    const answer = await fetch(...call);
    if (lost++ < 2) throw new TypeError("connection reset");
    return answer;
  };
  const job = await new Qbull({ ...settings, fetch: unlucky }).enqueue("email", "welcome", { to: "bob" });

  assert.equal(lost, 3);
  assert.equal(job.created, false);
  assert.equal(await job.wait({ timeoutMs: 60_000 }), "welcome, bob");
});

test("a failed job throws its error, a cancelled one too", async () => {
  const failed = await qbull.enqueue("email", "welcome", { to: "" });
  const cancelled = await qbull.enqueue("email", "welcome", { to: "cy" }, { delay: 3600 });
  await assert.rejects(cancelled.wait({ timeoutMs: 100 }), ResultTimeout);
  await cancelled.cancel();

  await assert.rejects(failed.wait({ timeoutMs: 60_000 }), (error) => {
    assert.ok(error instanceof JobFailed && error instanceof QbullError);
    assert.match(error.message, /there is nobody to write to/);
    return error.job.state === "failed";
  });
  await assert.rejects(cancelled.wait(), JobCancelled);
});

test("a refusal is a problem with its reason, and is not repeated", async () => {
  let sent = 0;
  const counting = (...call) => (sent++, fetch(...call));
  const client = new Qbull({ ...settings, fetch: counting });

  await assert.rejects(client.enqueue("email", "welcome", { name: "x" }), (error) => {
    assert.ok(error instanceof ProblemError);
    assert.equal(error.status, 400);
    return /unexpected keyword argument 'name'/.test(error.message);
  });
  await assert.rejects(new Qbull({ url: settings.url, token: "wrong" }).enqueue("email", "welcome", {}), { status: 401 });
  assert.equal(sent, 1);
});

test("an API that is away is named", async () => {
  const away = new Qbull({ url: "http://127.0.0.1:9", retries: 1 });

  await assert.rejects(away.job("email", "x").info(), /127\.0\.0\.1:9: the API cannot be reached/);
});

test("events are streamed until the caller stops", async () => {
  const ending = new AbortController();
  const seen = [];
  for await (const { event, data } of qbull.events({ queue: "email", signal: ending.signal })) {
    seen.push(event);
    if (event === "snapshot") await qbull.enqueue("email", "welcome", { to: "eve" }, { id: "eve" });
    if (event === "job" && data.id === "eve") {
      assert.equal(data.state, "completed");
      ending.abort();
    }
  }

  assert.equal(seen[0], "snapshot");
  assert.equal(seen.at(-1), "job");
});
