// Where the task of a running job is at the moment: its worker answers when somebody asks.
import { useState } from "preact/hooks";
import { at, post } from "../api";
import { timeOfDay } from "../format";
import { Button, Card, Copy } from "../parts/basics";
import { Traceback } from "../parts/traceback";
import { t, type Text } from "../words";
import type { Job, Stack } from "../wire";

const kinds: Record<Stack["kind"], Text> = { coroutine: "a coroutine", thread: "a thread", process: "a process of its own" };

export function StackCard({ job }: { job: Job }) {
  const [told, setTold] = useState<Stack | null>(null);
  const [wrong, setWrong] = useState<string | null>(null);
  const ask = async () => {
    setWrong(null);
    try {
      setTold(await post<Stack>(at.job(job.queue, job.id, "/stack")));
    } catch (why) {
      setWrong(why instanceof Error ? why.message : String(why));
    }
  };
  return (
    <Card
      title={t("Stack")}
      aside={<>{told && <Copy text={told.stack} />}<Button small onClick={ask}>{told ? t("Look again") : t("Show the stack")}</Button></>}
    >
      <div aria-live="polite">
        {wrong ? <p class="bad-text">{wrong}</p> : told ? <p class="faint">{t("{kind} in {worker}, at {time}", { kind: t(kinds[told.kind]), worker: told.worker, time: timeOfDay(told.timestamp) })}</p> : <p class="faint">{t("Its worker can say where the task is at the moment. The job goes on meanwhile.")}</p>}
      </div>
      {told && <Traceback text={told.stack} label={t("Stack")} />}
    </Card>
  );
}
