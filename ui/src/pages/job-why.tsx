// Why a job is not running: each reason in words, with its time and the action that changes it.
import { at } from "../api";
import { useAsk } from "../ask";
import { clock, duration } from "../format";
import { Ago, Card } from "../parts/basics";
import { Failed, Loading } from "../parts/blank";
import { Icon, type IconName } from "../parts/icon";
import { to } from "../route";
import { reason } from "../said";
import { t } from "../words";
import type { Job, Reason, Why } from "../wire";
import { Remedy } from "./job-remedy";

const icons: Partial<Record<Reason["code"], IconName>> = {
  running: "play",
  next: "right",
  due: "delayed",
  retry: "retry",
  "put-off": "delayed",
  sleeping: "delayed",
  rate: "delayed",
  "shared-limit": "delayed",
  paused: "pause",
  held: "pause",
  halted: "dead",
  flow: "flows",
  called: "flows",
  "no-worker": "workers",
  unread: "workers",
  "no-task": "workers",
  "no-label": "workers",
  resource: "workers",
  parked: "workers",
};

export function WhyCard({ job }: { job: Job }) {
  const asked = useAsk<Why>(at.job(job.queue, job.id, "/why"), { every: 3000, always: true });
  const running = job.state === "active";
  return (
    <Card title={running ? t("What it is doing") : t("Why is it not running?")}>
      {!asked.data ? (
        asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={2} />
      ) : (
        <ol class="reasons">
          {asked.data.reasons.map((one) => (
            <li key={one.code}>
              <span class={`reason-icon ${one.code}`}>
                <Icon name={icons[one.code] ?? "waiting"} />
              </span>
              <div>
                <p>{reason(one, job.queue)}</p>
                <Remedy reason={one} job={job} then={asked.again} />
                <small class="faint">
                  {one.at && <Due at={one.at} />}
                  {one.jobId && one.jobId !== job.id && (
                    <>
                      {one.at && " · "}
                      <a href={to.job(String(one.values.queue ?? job.queue), one.jobId)}>{t("the job it waits for")}</a>
                    </>
                  )}
                </small>
              </div>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

function Due({ at: moment }: { at: string }) {
  const left = Date.parse(moment) - clock.value;
  return left > 0 ? <>{t("in {time}", { time: duration(left) })}</> : <Ago at={moment} />;
}
