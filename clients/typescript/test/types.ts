// Only checked by tsc: a wrong call must not compile.
import { Qbull } from "../src/index.js";

type Tasks = {
  email: { welcome: { payload: { to: string }; result: string } };
};

export async function check(qbull: Qbull<Tasks>): Promise<string> {
  const job = await qbull.enqueue("email", "welcome", { to: "ann" }, { delay: 60, priority: 1 });
  // @ts-expect-error - an argument that the task does not have
  await qbull.enqueue("email", "welcome", { name: "ann" });
  // @ts-expect-error - a task that the queue does not have
  await qbull.enqueue("email", "goodbye", { to: "ann" });
  // @ts-expect-error - an option that does not exist
  await qbull.enqueue("email", "welcome", { to: "ann" }, { attempts: 3 });
  return job.wait();
}
