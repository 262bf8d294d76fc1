// Clean: remove finished jobs of a queue that ended long enough ago.
import { useEffect, useState } from "preact/hooks";
import { at, query } from "../api";
import { useAsk } from "../ask";
import { count } from "../format";
import { countOf } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { operate } from "../parts/operations";
import { say } from "../parts/toast";
import { t } from "../words";
import type { Matching, Queue } from "../wire";

export function Clean({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  const [state, setState] = useState<"completed" | "failed" | "cancelled">("completed");
  const [minutes, setMinutes] = useState("60");
  const [before, setBefore] = useState(() => new Date().toISOString());
  useEffect(() => {
    const wait = setTimeout(() => setBefore(new Date(Date.now() - Number(minutes || 0) * 60_000).toISOString()), 250);
    return () => clearTimeout(wait);
  }, [minutes, state]);
  const asked = useAsk<Matching>(at.queue(queue.name, `/matching${query({ state, before })}`));
  const meant = asked.waiting ? undefined : asked.data;
  const many = meant && `${count(meant.count)}${meant.exact ? "" : "+"}`;
  return (
    <FormDialog
      title={t("Clean {queue}", { queue: queue.name })}
      action={many ? `${t("Remove them")} (${many})` : t("Remove them")}
      disabled={meant?.count === 0}
      danger
      onClose={onClose}
      submit={async () => {
        void operate(queue.name, { action: "clean", state, olderThan: Number(minutes) * 60 }).then((ended) =>
          say(t("{n} job was removed|{n} jobs were removed", { n: ended.done }), { bad: ended.state === "failed" }),
        );
      }}
    >
      <div class="fields">
        <Select
          label={t("Which jobs")}
          value={state}
          onInput={(value) => setState(value as typeof state)}
          options={[
            ["completed", t("completed")],
            ["failed", t("failed")],
            ["cancelled", t("cancelled")],
          ]}
        />
        <Field label={t("that ended at least this many minutes ago")} type="number" value={minutes} onInput={setMinutes} required />
      </div>
      <p class="dialog-text" role="status">
        {many === undefined ? t("Counting …") : t("{n} job of {all} is meant. What is removed cannot be brought back.|{n} jobs of {all} are meant. What is removed cannot be brought back.", { n: many, all: countOf(queue.stats, state) })}
      </p>
    </FormDialog>
  );
}
