// What the server says of itself, in the language of the page: it gives a code and values, and its own English words for whoever knows no better.
import { duration, moment } from "./format";
import { type Text, t } from "./words";
import type { AlertProblem, HealthProblem, Reason } from "./wire";

type Values = Record<string, string | number>;

/** A problem in one sentence. Its subject is shown beside it. */
export function problem(one: HealthProblem): string {
  const { code, values } = one;
  const n = values.jobs ?? 0;
  const time = duration((values.seconds ?? 0) * 1000);
  switch (code) {
    case "away":
      return t("The server that keeps the jobs cannot be reached.");
    case "unreadable":
      return t("The settings of the queue on the server cannot be read; a newer version may have written them.");
    case "unserved":
      return t("{n} job waits and no worker serves the queue.|{n} jobs wait and no worker serves the queue.", { n });
    case "unread":
      return t("{n} job waits in a partition that no worker reads ({partitions}).|{n} jobs wait in partitions that no worker reads ({partitions}).", { n, partitions: one.partitions.join(", ") });
    case "unknown":
      return t("{n} job waits for the task {task}, which no live worker can run.|{n} jobs wait for the task {task}, which no live worker can run.", { n, task: one.task ?? "" });
    case "stale":
      return t("The oldest waiting job could have run {time} ago.", { time });
    case "blocked":
      return `${t("{n} key waits for the next attempt of a job that fails.|{n} keys wait for the next attempt of a job that fails.", { n: values.keys ?? 0 })} ${t("{n} job waits behind.|{n} jobs wait behind.", { n })}`;
    case "halted": {
      const keys = t("{n} key is halted by a dead letter.|{n} keys are halted by dead letters.", { n: values.keys ?? 0 });
      return n ? `${keys} ${t("{n} job waits behind.|{n} jobs wait behind.", { n })}` : keys;
    }
    case "paused": {
      const paused = t("Paused: {n} job waits until somebody resumes it.|Paused: {n} jobs wait until somebody resumes it.", { n });
      return values.added ? `${paused} ${t("{n} came in the last minutes.", { n: values.added })}` : paused;
    }
    case "failing":
      return t("{failed} of {attempts} attempts failed in the last minutes, usually {usual} %.", { failed: values.failed ?? 0, attempts: values.attempts ?? 0, usual: values.usual ?? 0 });
    case "retention":
      return t("Completed jobs, their results and their ids stay for about {seconds} s, because only {kept} are kept.", { seconds: values.seconds ?? 0, kept: values.kept ?? 0 });
    case "limited": {
      const jobs = t("{n} job waits for it, the oldest for {time}.|{n} jobs wait for it, the oldest for {time}.", { n, time });
      return values.spent ? `${jobs} ${t("Its budget of the day is spent.")}` : jobs;
    }
    case "conflicting":
      return t("Live workers declare it with {n} different values.", { n: values.declarations ?? 0 });
    case "overdue":
      return `${t("It has not run for {time}", { time })}.`;
    case "lost":
      if (values.workers) return t("{n} worker was lost and not replaced.|{n} workers were lost and not replaced.", { n: values.workers });
      return `${t(firing.lost, { n: values.count ?? 0 })}.`;
    case "failed":
    case "repeated":
    case "missed":
      return `${t(firing[code], { n: values.count ?? 0 })}.`;
  }
}

/** Why a job is not running, or what it does. */
export function reason({ code, text, jobId, at, values }: Reason, queue: string): string {
  const when = at ? moment(at) : "";
  const told: Values = { queue, ...values, at: when, job: jobId ?? "" };
  const key = values.key === undefined ? t("its lane") : t("its key {key}", { key: values.key });
  const error = values.error === undefined ? "" : ` (${values.error})`;
  switch (code) {
    case "finished":
      return t(finished[String(values.state)] ?? "It completed at {at}", told) + error;
    case "running":
      return t("Worker {worker} has it since {at}", told);
    case "blocked":
      return t("The event loop of worker {worker} is blocked by {tasks} since {at}; use a plain function or cpu=True for such work", told);
    case "stopping":
      return t("It is being stopped, but still runs");
    case "paused":
      return t("The queue {queue} is paused, by {by} since {at}; resume it", told);
    case "held":
      return t("No job of the queue {queue} starts until {at}, after {because}", told);
    case "no-worker":
      return t('No live worker serves the queue {queue}; start one with "qbull worker MODULE:APP"', told);
    case "unread":
      return t("None of the {workers} live workers reads partition {partition}", told);
    case "no-task":
      return t("No live worker of the queue knows the task {task}; they know: {tasks}", told);
    case "no-label":
      return t("The task {task} asks for {demand}, and none of the {workers} live workers of the queue has that", told);
    case "resource":
      return t("It waits for {demand} since {at}", told);
    case "parked":
      return t("The code of the worker that read it at {at} cannot run it; a worker whose code fits takes it", told);
    case "retry":
      return t("Attempt {attempt} failed, it waits until {at} for the next", told) + error;
    case "put-off":
      return t("The starts of {key} are used up ({rate}); it waits until {at}", { ...told, key });
    case "sleeping":
      return t("It sleeps until {at}", told);
    case "signal":
      return at ? t("It waits for the signal {signal}, until {at}", told) : t("It waits for the signal {signal}", told);
    case "called":
      if (!jobId) return t("It waits for a job that it has called, which has just ended");
      return t("It has called the job {job} ({task}) of the queue {queue}, and waits for it", told);
    case "due":
      return t("It is delayed until {at}", told);
    case "flow":
      return flow(told) + error;
    case "behind":
      if (!jobId) return t("Others of {key} come first", { key });
      return t(behind[String(values.state)] ?? "It is number {position} behind a job of {key}, which has just ended", { ...told, key });
    case "halted":
      return t("The lane of {key} is halted by the dead letter {job}; retry or remove it", { ...told, key });
    case "rate":
      return t("The rate of the queue ({rate}) is used up until {at}", told);
    case "limit":
      return t("{jobs} jobs of the queue run, and at most {most} may", told);
    case "shared-limit":
      return t("It waits for the shared limit {limit} since {at}: {rule}", told);
    case "busy":
      return t("All {slots} slots of the queue's workers are in use", told);
    case "line":
      return Number(values.jobs) > 1000 ? t("More than 1,000 others come first") : t("{n} other comes first|{n} others come first", { n: values.jobs ?? 0 });
    case "next":
      return t("Nothing stands in its way; a worker is about to take it");
    default:
      return text;
  }
}

const finished: Record<string, Text> = {
  failed: "It became a dead letter at {at}",
  cancelled: "It was cancelled at {at}",
};

const behind: Record<string, Text> = {
  active: "It is number {position} behind a job of {key}, which worker {worker} has",
  delayed: "It is number {position} behind a job of {key}, which is delayed",
  waiting: "It is number {position} behind a job of {key}, which waits for a worker",
};

function flow(told: Values): string {
  return Number(told.others)
    ? t("It waits for {task} of the queue {queue} and {others} others of its flow", told)
    : t("It waits for {task} of the queue {queue}, a job of its flow", told);
}

/** The kinds of problems that people are told of. */
type AlertKind = Exclude<AlertProblem["kind"], "away" | "unreadable" | "halted" | "paused" | "failing" | "retention" | "limited" | "conflicting">;

/** What people are told of, without whose problem it is. */
export function alert({ kind, count: n, over, text }: AlertProblem): string {
  if (!(kind in firing)) return text;
  if (over) return t(resolved[kind as AlertKind], { n });
  return t(firing[kind as AlertKind], { n, time: duration(n * 1000) });
}

const firing: Record<AlertKind, Text> = {
  failed: "{n} job became a dead letter|{n} jobs became dead letters",
  repeated: "{n} attempt failed within five minutes|{n} attempts failed within five minutes",
  stale: "Its oldest job has waited for {time}",
  missed: "{n} run was missed|{n} runs were missed",
  overdue: "It has not run for {time}",
  lost: "{n} worker was lost|{n} workers were lost",
  unserved: "{n} job waits and no worker serves the queue|{n} jobs wait and no worker serves the queue",
  unread: "{n} job waits in a partition that no worker reads|{n} jobs wait in partitions that no worker reads",
  unknown: "{n} job waits for a task that no worker knows|{n} jobs wait for a task that no worker knows",
  blocked: "{n} job waits behind a job that fails|{n} jobs wait behind jobs that fail",
};

const resolved: Record<AlertKind, Text> = {
  failed: "The dead letters were dealt with",
  repeated: "Its attempts no longer fail",
  stale: "Its jobs start again",
  missed: "No more runs were missed",
  overdue: "It runs again",
  lost: "No more workers were lost",
  unserved: "A worker serves the queue again",
  unread: "Workers read all partitions again",
  unknown: "A worker knows the task again",
  blocked: "No key waits for a job that fails",
};
