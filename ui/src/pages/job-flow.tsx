// The flow of a job: which jobs it waits for, and which wait for it.
import { at } from "../api";
import { useAsk } from "../ask";
import { Card } from "../parts/basics";
import { FlowGraph } from "../parts/flow";
import { to } from "../route";
import { operator } from "../session";
import { t } from "../words";
import type { Flow, Job } from "../wire";
import { FlowButtons } from "./flow-actions";

export function JobFlow({ job }: { job: Job }) {
  const asked = useAsk<Flow>(at.job(job.queue, job.id, "/flow"), { every: 3000 });
  const told = asked.data;
  if (!told?.flow) return null;
  const done = told.steps.filter((step) => step.state === "completed").length;
  const counts: Record<string, number> = {};
  for (const step of told.steps) counts[step.state] = (counts[step.state] ?? 0) + 1;
  return (
    <Card
      title={t("Flow")}
      aside={
        <>
          <span class="faint">
            {t("{n} of {all} jobs completed", { n: done, all: told.steps.length })}
            {told.more && ` · ${t("only a part is shown")}`}
          </span>
          {operator.value && <FlowButtons queue={job.queue} id={job.id} counts={counts} then={asked.again} words />}
          <a href={to.flows()}>{t("All flows")}</a>
        </>
      }
    >
      <FlowGraph steps={told.steps} here={job.id} />
    </Card>
  );
}
