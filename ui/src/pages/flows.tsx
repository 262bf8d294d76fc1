// Flows: jobs that wait for each other, those under way and those that ended lately.
import { useAsk } from "../ask";
import { Ago, Card, Head, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { FlowLine } from "../parts/flow";
import { to } from "../route";
import { t } from "../words";
import type { Flows as Told, ShownFlow } from "../wire";

const tones = { running: "accent", completed: "good", rescued: "warn", failed: "bad", cancelled: "plain" } as const;

export function Flows() {
  const asked = useAsk<Told>("api/flows", { every: 2500 });
  return (
    <>
      <Head title={t("Flows")} under={t("Jobs that wait for other jobs: one after the other, or all of a group before the next.")} />
      <Card flush>
        <Shown answer={asked} rows={6}>
          {(told) =>
            told.flows.length === 0 ? (
              <Empty icon="flows" title={t("There are no flows")}>
                {t("Chains and groups of jobs appear here while they run, and for a while after.")}
              </Empty>
            ) : (
              <div class="scroll">
                <table class="flows">
                  <thead>
                    <tr>
                      <th>{t("Ends with")}</th>
                      <th>{t("State")}</th>
                      <th class="grow">{t("Jobs")}</th>
                      <th class="num">{t("completed")}</th>
                      <th class="num">{t("Enqueued")}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {told.flows.map((one) => (
                      <Row key={one.flow} one={one} />
                    ))}
                  </tbody>
                </table>
              </div>
            )
          }
        </Shown>
      </Card>
    </>
  );
}

function Row({ one }: { one: ShownFlow }) {
  const done = one.steps.filter((step) => step.state === "completed").length;
  return (
    <tr data-row tabIndex={-1}>
      <td class="job-name">
        <a href={to.job(one.queue, one.id)}>
          <span class="strong">{one.task}</span>
          <span class="mono faint cut">{one.queue}</span>
        </a>
      </td>
      <td>
        <Tag tone={tones[one.state]}>{t(one.state)}</Tag>
      </td>
      <td class="grow">
        <FlowLine steps={one.steps} />
      </td>
      <td class="num" data-label={t("completed")}>{t("{n} of {all}", { n: done, all: one.more ? `${one.steps.length}+` : one.steps.length })}</td>
      <td class="num" data-label={t("Enqueued")}>
        <Ago at={one.createdAt} />
      </td>
    </tr>
  );
}
