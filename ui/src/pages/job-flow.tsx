// The flow of a job: which jobs it waits for, and which wait for it.
import { at } from "../api";
import { useAsk } from "../ask";
import { Card } from "../parts/basics";
import { FlowGraph } from "../parts/flow";
import { to } from "../route";
import { t } from "../words";
import type { Flow, Job } from "../wire";

export function JobFlow({ job }: { job: Job }) {
  const asked = useAsk<Flow>(at.job(job.queue, job.id, "/flow"), { every: 3000 });
  const told = asked.data;
  if (!told?.flow) return null;
  const done = told.steps.filter((step) => step.state === "completed").length;
  return (
    <Card
      title={t("Flow")}
      aside={
        <>
          <span class="faint">
            {t("{n} of {all} jobs completed", { n: done, all: told.steps.length })}
            {told.more && ` · ${t("only a part is shown")}`}
          </span>
          <a href={to.flows()}>{t("All flows")}</a>
        </>
      }
    >
      <FlowGraph steps={told.steps} here={job.id} />
    </Card>
  );
}
