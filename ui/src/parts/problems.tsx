// The problems of the verdict: each with its subject, since when, and the action. The overview and the alerts show the same list.
import { Ago, Button } from "./basics";
import { to } from "../route";
import { problem } from "../said";
import { operator } from "../session";
import { pauseOrResume } from "../queue-actions";
import { type Text, t } from "../words";
import type { HealthProblem } from "../wire";

export function ProblemList({ problems, most = 12 }: { problems: HealthProblem[]; most?: number }) {
  return (
    <ul class="problems">
      {problems.slice(0, most).map((one) => (
        <li key={`${one.code} ${one.queue} ${one.schedule} ${one.task} ${one.limit}`} class={one.severity} title={one.remedy}>
          <b class="problem-subject">{subject(one)}</b>
          <span class="problem-text">{problem(one)}</span>
          <small class="problem-since faint">
            {one.by && <span class="nowrap">{t("by {name}", { name: one.by })} </span>}
            {one.since && <Ago at={one.since} />}
          </small>
          <Action one={one} />
        </li>
      ))}
      {problems.length > most && <li>{t("and {n} more", { n: problems.length - most })}</li>}
    </ul>
  );
}

function subject(one: HealthProblem): string {
  if (one.schedule) return one.schedule;
  if (one.limit) return one.limit;
  if (one.code === "lost") return one.workers.join(", ") || t("Workers");
  if (one.code === "repeated" && one.task) return `${one.queue}/${one.task}`;
  return one.queue ?? t("Server");
}

function Action({ one }: { one: HealthProblem }) {
  const { queue } = one;
  if (one.code === "paused" && queue && operator.value) {
    return <Button small icon="play" onClick={() => pauseOrResume(queue, true)}>{t("Resume")}</Button>;
  }
  return <a class="problem-action" href={whereTo(one)}>{t(action[one.code])}</a>;
}

const action: Record<HealthProblem["code"], Text> = {
  away: "Show the server",
  unreadable: "Show the server",
  unserved: "Show the workers",
  unread: "Show the partitions",
  unknown: "Show the jobs",
  stale: "Show the jobs",
  blocked: "Show the keys",
  halted: "Show the keys",
  paused: "Show the queue",
  retention: "Show the settings",
  failing: "Show the failures",
  failed: "Show the failures",
  repeated: "Show the failures",
  missed: "Show the schedules",
  overdue: "Show the schedules",
  lost: "Show the workers",
  limited: "Show the limits",
  conflicting: "Show the limits",
};

function whereTo(one: HealthProblem): string {
  const queue = one.queue ?? "";
  switch (one.code) {
    case "away":
    case "unreadable":
      return to.system();
    case "unserved":
    case "lost":
      return to.workers();
    case "unread":
    case "paused":
    case "retention":
      return to.queue(queue);
    case "blocked":
    case "halted":
      return to.keys(queue);
    case "failing":
    case "failed":
    case "repeated":
      return to.dead(queue);
    case "limited":
    case "conflicting":
      return to.limits();
    case "missed":
    case "overdue":
      return to.schedules();
    default:
      return to.jobs(queue, "waiting");
  }
}
