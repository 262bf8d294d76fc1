// Clean: remove finished jobs of a queue that ended long enough ago.
import { useState } from "preact/hooks";
import { FormDialog } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { operate } from "../parts/operations";
import { say } from "../parts/toast";
import { t } from "../words";
import type { Queue } from "../wire";

export function Clean({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  const [state, setState] = useState<"completed" | "failed" | "cancelled">("completed");
  const [minutes, setMinutes] = useState("60");
  const there = queue.stats[state];
  return (
    <FormDialog
      title={t("Clean {queue}", { queue: queue.name })}
      action={t("Remove them")}
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
        <Field label={t("that ended so many minutes ago or longer")} type="number" value={minutes} onInput={setMinutes} required />
      </div>
      <p class="dialog-text">{t("{n} job is {state} now. What is removed cannot be brought back.|{n} jobs are {state} now. What is removed cannot be brought back.", { n: there, state: t(state) })}</p>
    </FormDialog>
  );
}
