export { Qbull, type Caller, type JobHandle, type QbullSettings, type TaskMap, type WaitOptions } from "./client.js";
export { JobCancelled, JobFailed, ProblemError, QbullError, ResultTimeout } from "./errors.js";
export type { QbullEvent } from "./events.js";
export { partitionOf } from "./partition.js";
export type { Accepted, Job, JobOptions, ProblemBody } from "./wire.js";
