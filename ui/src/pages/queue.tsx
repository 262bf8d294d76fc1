// One queue: its counts, its minutes, who reads its partitions, its settings and its tasks.
import { useState } from "preact/hooks";
import { at, query } from "../api";
import { useAsk } from "../ask";
import { clock, count, duration, rate } from "../format";
import { queues } from "../live";
import { Button, Card, Figure, Head, Tag, countOf } from "../parts/basics";
import { Empty, Failed, Loading, Shown } from "../parts/blank";
import { LATENCY_SPANS, QueueLatency } from "../parts/latency";
import { openJobs, spanOf } from "../parts/span";
import { Throughput } from "../parts/throughput";
import { place, to } from "../route";
import { admin, operator } from "../session";
import { t } from "../words";
import type { Marks, Minutes, Queue } from "../wire";
import { Clean } from "./queue-clean";
import { Enqueue } from "./queue-enqueue";
import { PartitionsCard } from "./queue-partitions";
import { SettingsCard } from "./queue-settings";
import { PauseButton } from "./queues";
import { argumentsOf } from "./task-arguments";

export function QueueView() {
  const name = place.value.query.get("name") ?? "";
  const asked = useAsk<Queue>(at.queue(name), { every: 4000 });
  const [dialog, setDialog] = useState<"enqueue" | "clean" | null>(null);
  if (!asked.data || asked.data.name !== name) return asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={8} />;
  const queue = asked.data;
  const now = queues.value?.[name] ?? queue.stats;
  const age = now.oldestWaitingAt ? Math.max(0, clock.value - Date.parse(now.oldestWaitingAt)) : 0;
  return (
    <>
      <Head
        back={<a href={to.queues()}>{t("Queues")}</a>}
        title={
          <>
            {queue.name} {now.isPaused && <Tag tone="warn">{t("paused")}</Tag>}
          </>
        }
        under={<Nature queue={queue} />}
      >
        {operator.value && (
          <>
            {admin.value && <Button icon="trash" onClick={() => setDialog("clean")}>{t("Clean")}</Button>}
            <PauseButton name={name} paused={now.isPaused} then={asked.again} />
            <Button kind="primary" icon="plus" onClick={() => setDialog("enqueue")}>{t("New job")}</Button>
          </>
        )}
      </Head>
      <div class="figures">
        {(["waiting", "active", "delayed", "completed", "failed", "cancelled"] as const).map((state) => (
          <Figure
            key={state}
            label={t(state)}
            value={count(countOf(now, state))}
            tone={state === "failed" && now.failed ? "bad" : ""}
            href={to.jobs(name, state)}
            note={
              state === "waiting"
                ? now.oldestWaitingAt
                  ? t("the oldest for {time}", { time: duration(age) })
                  : countOf(now, "waiting")
                    ? t("all behind others")
                    : t("nothing waits")
                : state === "active"
                  ? t("of {n} slots", { n: queue.slots })
                  : state === "completed"
                    ? `${rate(queues.value?.[name]?.perSecond?.completed ?? 0)} ${t("jobs/s")}`
                    : undefined
            }
          />
        ))}
      </div>
      <QueueLatency name={name} />
      <QueueMinutes name={name} />
      <PartitionsCard queue={queue} />
      <div class="columns even">
        <SettingsCard queue={queue} />
        <Card title={t("Tasks")} flush>
          {queue.tasks.length === 0 ? (
            <Empty icon="jobs" title={t("No task is known yet")}>{t("A worker that serves this queue reports its tasks.")}</Empty>
          ) : (
            <ul class="rows">
              {queue.tasks.map((one) => (
                <li key={one.name}>
                  <a class="row-main one-line" href={to.jobs(name, "completed", { task: one.name })}>
                    <span class="strong">{one.name}</span>
                    <small class="faint mono cut">{argumentsOf(one.arguments)}</small>
                  </a>
                </li>
              ))}
            </ul>
          )}
        </Card>
      </div>
      {dialog === "enqueue" && <Enqueue queue={queue} onClose={() => setDialog(null)} />}
      {dialog === "clean" && <Clean queue={queue} onClose={() => setDialog(null)} />}
    </>
  );
}

function Nature({ queue }: { queue: Queue }) {
  const order = queue.order === "key" ? t("in order by key") : queue.order === "partition" ? t("in order by partition") : t("no order");
  const parts = [
    order,
    t("{n} partition|{n} partitions", { n: queue.partitions }),
    t("{n} worker|{n} workers", { n: queue.workers }),
    t("{n} slot|{n} slots", { n: queue.slots }),
    ...(queue.onFailed === "halt" ? [t("halts at a dead letter")] : []),
  ];
  return <>{parts.join(" · ")}</>;
}

/** Minutes are kept for a day; a longer span shows the last day. */
function QueueMinutes({ name }: { name: string }) {
  const span = spanOf(LATENCY_SPANS) === "1h" ? "1h" : "24h";
  const asked = useAsk<Minutes>(at.queue(name, `/metrics?minutes=${span === "1h" ? 60 : 1440}`), { every: 5000 });
  const marks = useAsk<Marks>(`api/marks${query({ span, queue: name })}`, { every: 30_000, always: true });
  return (
    <Card title={span === "1h" ? t("Jobs per minute") : t("Jobs per minute of the last day")}>
      <Shown answer={asked}>
        {(told) => <Throughput minutes={told.minutes} span={span} marks={marks.data?.marks} height={160} onPick={(one) => openJobs(name, one)} />}
      </Shown>
    </Card>
  );
}
