import type { Job, ProblemBody } from "./wire.js";

/** The base of all errors of this package. */
export class QbullError extends Error {
  override name = "QbullError";
}

/** The API has refused a request. `problem` is its answer; its `detail` is the message. */
export class ProblemError extends QbullError {
  override name = "ProblemError";

  constructor(readonly status: number, readonly problem: Partial<ProblemBody>) {
    super(problem.detail ?? `the API answered ${status}`);
  }
}

/** The job has failed permanently. */
export class JobFailed extends QbullError {
  override name = "JobFailed";

  constructor(readonly job: Job) {
    super(job.error ?? "no reason was given");
  }
}

/** The job was cancelled, or it has expired. */
export class JobCancelled extends QbullError {
  override name = "JobCancelled";

  constructor(readonly job: Job) {
    super(job.error ?? `job ${job.id} was cancelled`);
  }
}

/** The job did not end in time. It goes on. */
export class ResultTimeout extends QbullError {
  override name = "ResultTimeout";
}
