// Queues: all of them, what they hold and how fast it moves.
import { useAsk } from "../ask";
import { queues, type LiveStats } from "../live";
import { Button, Card, Head } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { QueueTable } from "../parts/queue-table";
import { pauseOrResume } from "../queue-actions";
import { place, refine } from "../route";
import { t } from "../words";
import type { AllStats } from "../wire";

export function Queues() {
  const asked = useAsk<AllStats>("api/queues/stats", { every: 5000 });
  const now: Record<string, LiveStats> | undefined = queues.value ?? asked.data?.queues;
  const wanted = place.value.query.get("find") ?? "";
  if (!now) return asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={8} />;
  const all = Object.values(now)
    .filter((one) => one.name.toLowerCase().includes(wanted.toLowerCase()));
  return (
    <>
      <Head title={t("Queues")}>
        <div class="search" data-filter>
          <input type="search" aria-label={t("Find a queue")} placeholder={t("Find a queue")} value={wanted} onInput={(event) => refine({ find: event.currentTarget.value }, { replace: true })} />
        </div>
      </Head>
      {all.length === 0 ? (
        <Card>
          <Empty icon="queues" title={wanted ? t("No queue matches") : t("There is no queue yet")}>{!wanted && t("A queue appears here when a worker or a producer has used it.")}</Empty>
        </Card>
      ) : (
        <Card flush>
          <QueueTable queues={all} actions />
        </Card>
      )}
    </>
  );
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
