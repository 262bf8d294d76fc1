// Queues: all of them, what they hold and how fast it moves.
import { useMemo } from "preact/hooks";
import { at, post } from "../api";
import { useAsk } from "../ask";
import { clock, count, duration, rate } from "../format";
import { queues, type LiveStats } from "../live";
import { Button, Card, CountLink, Head, Tag } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { Spark } from "../parts/chart";
import { inOrder } from "../parts/own";
import { doing } from "../parts/toast";
import { place, refine, to } from "../route";
import { operator } from "../session";
import { t } from "../words";
import type { AllStats, Minutes } from "../wire";

export function Queues() {
  const asked = useAsk<AllStats>("api/queues/stats", { every: 5000 });
  const now: Record<string, LiveStats> | undefined = queues.value ?? asked.data?.queues;
  const wanted = place.value.query.get("find") ?? "";
  if (!now) return asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={8} />;
  const all = Object.values(now)
    .filter((one) => one.name.toLowerCase().includes(wanted.toLowerCase()))
    .sort(inOrder);
  return (
    <>
      <Head title={t("Queues")}>
        <div class="search" data-filter>
          <input type="search" aria-label={t("Find a queue")} placeholder={t("Find a queue")} value={wanted} onInput={(event) => refine({ find: event.currentTarget.value }, { replace: true })} />
        </div>
      </Head>
      {all.length === 0 ? (
        <Card>
          <Empty icon="queues" title={wanted ? t("No queue is called so") : t("There is no queue yet")}>{!wanted && t("A queue appears here when a worker or a producer has used it.")}</Empty>
        </Card>
      ) : (
        <div class="queue-cards">
          {all.map((one) => (
            <QueueCard key={one.name} one={one} />
          ))}
        </div>
      )}
    </>
  );
}

function QueueCard({ one }: { one: LiveStats }) {
  const told = useAsk<Minutes>(at.queue(one.name, "/metrics?minutes=30"), { every: 15_000 });
  const values = useMemo(() => told.data?.minutes.slice(0, -1).map((minute) => minute.completed) ?? [], [told.data]);
  const age = one.oldestWaitingAt ? Math.max(0, clock.value - Date.parse(one.oldestWaitingAt)) : 0;
  return (
    <article class={`queue-card ${one.isPaused ? "is-paused" : ""}`} data-row tabIndex={-1}>
      <div class="queue-card-head">
        <h2>
          <a href={to.queue(one.name)}>{one.name}</a>
        </h2>
        {one.isPaused && <Tag tone="warn">{t("paused")}</Tag>}
        <span class="push">{operator.value && <PauseButton name={one.name} paused={one.isPaused} small />}</span>
      </div>
      <div class="queue-card-flow">
        <div>
          <b>{rate(one.perSecond?.completed ?? 0)}</b> <small class="faint">{t("jobs/s")}</small>
        </div>
        {values.length > 1 ? <Spark values={values} tone="--chart-good" /> : <span class="spark" />}
      </div>
      <dl class="queue-card-counts">
        {(["waiting", "active", "delayed", "failed", "completed", "cancelled"] as const).map((state) => (
          <div key={state}>
            <dt>{t(state)}</dt>
            <dd>
              <CountLink n={one[state]} href={to.jobs(one.name, state)} tone={state === "failed" ? "bad" : ""} label={`${one.name}: ${count(one[state])} ${t(state)}`} />
            </dd>
          </div>
        ))}
      </dl>
      <p class="queue-card-foot faint">{one.oldestWaitingAt ? t("the oldest waits for {time}", { time: duration(age) }) : one.waiting ? t("all behind others") : t("nothing waits")}</p>
    </article>
  );
}

/** At once, and back at once: jobs that wait meanwhile are not lost. */
export async function pauseOrResume(name: string, paused: boolean, then?: () => unknown): Promise<void> {
  const call = (verb: "pause" | "resume") => async () => {
    await post(at.queue(name, `/${verb}`));
    then?.();
  };
  const [act, back] = paused ? (["resume", "pause"] as const) : (["pause", "resume"] as const);
  const said = { pause: t("{queue} is paused", { queue: name }), resume: t("{queue} goes on", { queue: name }) };
  await doing(call(act), said[act], { undo: () => doing(call(back), said[back]) });
}

export function PauseButton({ name, paused, small, then }: { name: string; paused: boolean; small?: boolean; then?: () => unknown }) {
  return (
    <Button
      small={small}
      kind={paused ? "primary" : "plain"}
      icon={paused ? "play" : "pause"}
      title={paused ? undefined : t("Running jobs finish; no other job starts until somebody resumes the queue. New jobs are still accepted.")}
      onClick={() => pauseOrResume(name, paused, then)}
    >
      {paused ? t("Resume") : t("Pause")}
    </Button>
  );
}
