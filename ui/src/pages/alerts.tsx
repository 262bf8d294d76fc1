// Alerts: what is wrong now, where people are told of it, what they were told; a test, and silence.
import { useState } from "preact/hooks";
import { post } from "../api";
import { useAsk } from "../ask";
import { withShortIds } from "../format";
import { Ago, Button, Card, Head, StateBadge, Tag } from "../parts/basics";
import { Empty, Loading, Shown } from "../parts/blank";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { say } from "../parts/toast";
import { ProblemList } from "../parts/problems";
import { pauseOrResume } from "../queue-actions";
import { health, isFiring } from "../health";
import { to } from "../route";
import { alert } from "../said";
import { admin } from "../session";
import { t, translated } from "../words";
import type { AlertDestination, AlertProblem, Alerts as Told, Tried, TriedAlerts } from "../wire";

const QUEUE = "qbull.alerts";

export function Alerts() {
  const asked = useAsk<Told>("api/alerts", { every: 3000, always: true });
  const [tried, setTried] = useState<Tried[] | null>(null);
  const told = asked.data;
  const somewhere = (told?.to.length ?? 0) > 0;
  const test = async () => {
    try {
      setTried((await post<TriedAlerts>("api/alerts/test")).tried);
    } catch (error) {
      say((error as Error).message, { bad: true });
    }
  };
  return (
    <>
      <Head title={t("Alerts")} under={told && somewhere ? t("They go to {places}.", { places: told.to.map(destinationText).join(", ") }) : undefined}>
        {admin.value && somewhere && told && (told.messages.length > 0 || told.silenced) && (
          <Button icon={told.silenced ? "play" : "pause"} onClick={() => pauseOrResume(QUEUE, told.silenced, asked.again)}>{told.silenced ? t("End the silence") : t("Silence")}</Button>
        )}
        {admin.value && somewhere && <Button kind="primary" icon="alerts" onClick={test}>{t("Send a test")}</Button>}
      </Head>
      <Shown answer={asked} rows={6}>
        {(now) => (
          <>
            {now.to.length === 0 && (
              <div class="notice warn">
                <Icon name="alerts" />
                <div>
                  <b>{t("Alerts have no recipient")}</b>
                  <p>{t("Set SLACK_WEBHOOK_URL or QBULL_ALERT_URLS for the workers and for this server.")}</p>
                </div>
              </div>
            )}
            {now.silenced && (
              <div class="notice warn">
                <Icon name="pause" />
                <div>
                  <b>{t("Nothing is sent for now")}</b>
                  <p>{t("Somebody has paused the messages. What is older than an hour when they go on is not sent.")}</p>
                </div>
              </div>
            )}
            <Firing />
            <Problems told={now} />
            <Messages told={now} />
          </>
        )}
      </Shown>
      {tried && <Outcome tried={tried} onClose={() => setTried(null)} />}
    </>
  );
}

const destinationTexts: Record<AlertDestination["kind"], (host: string) => string> = {
  slack: (host) => `Slack (${host})`,
  webhook: (host) => `webhook (${host})`,
  other: (host) => host,
};

function destinationText(one: AlertDestination): string {
  return destinationTexts[one.kind](one.host);
}

/** The same list as on the overview. */
function Firing() {
  const problems = health.value?.problems.filter(isFiring);
  return (
    <Card title={t("Firing")} flush>
      {!problems ? <Loading rows={3} /> : problems.length === 0 ? <Empty icon="done" title={t("All queues work normally")} /> : <ProblemList problems={problems} most={50} />}
    </Card>
  );
}

function Problems({ told }: { told: Told }) {
  return (
    <Card title={t("Alerts")} aside={<span class="faint">{told.asking.length ? t("asked for by {queues}", { queues: told.asking.join(", ") }) : ""}</span>} flush>
      {told.problems.length === 0 ? (
        <Empty icon="done" title={t("No alert is open")}>
          {told.asking.length ? "" : t("No queue asks for alerts yet: give one alert=True. Lost workers are always reported.")}
        </Empty>
      ) : (
        <ul class="rows">
          {told.problems.map((one) => (
            <li key={one.kind + one.queue + one.task + one.schedule}>
              <span class={`reason-icon ${one.over ? "good" : "bad"}`}>
                <Icon name={one.over ? "check" : "dead"} />
              </span>
              <a class="row-main" href={whereTo(one)}>
                <span class="strong">{subject(one)}</span> <span>{alert(one)}</span>
                {one.reason && <small class="error-text cut" title={one.reason}>{one.reason}</small>}
              </a>
              <small class="faint row-end">
                <Ago at={one.since} />
                <span>{one.said ? t("sent once|sent {n} times", { n: one.said }) : t("not sent yet")}</span>
              </small>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function subject(one: AlertProblem): string {
  if (one.kind === "lost") return t("Workers");
  if ((one.kind === "missed" || one.kind === "overdue") && one.schedule) return one.schedule;
  return one.kind === "repeated" ? `${one.queue}/${one.task}` : (one.queue ?? "");
}

function whereTo(one: AlertProblem): string {
  if (one.kind === "lost") return to.workers();
  if (one.kind === "missed" || one.kind === "overdue") return to.schedules();
  if (one.kind === "failed") return to.dead(one.queue ?? undefined);
  return one.job ? to.job(one.queue ?? "", one.job) : to.queue(one.queue ?? "");
}

function Messages({ told }: { told: Told }) {
  return (
    <Card title={t("Last messages")} flush>
      {told.messages.length === 0 ? (
        <Empty icon="alerts" title={t("No message was sent yet")} />
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th class="grow">{t("Message")}</th>
                <th>{t("To")}</th>
                <th>{t("State")}</th>
                <th class="num">{t("When")}</th>
              </tr>
            </thead>
            <tbody>
              {told.messages.map((one) => (
                <tr key={one.id} data-row tabIndex={-1}>
                  <td class="grow">
                    <a class="cut" href={to.job(QUEUE, one.id)} title={one.text}>{one.text}</a>
                    {one.error && <small class="error-text cut" title={one.error}>{withShortIds(one.error)}</small>}
                  </td>
                  <td class="nowrap">{destinationText(one.to)}</td>
                  <td>{one.state === "completed" ? <Tag tone="good">{t("sent")}</Tag> : <StateBadge state={one.state} />}</td>
                  <td class="num"><Ago at={one.at} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function Outcome({ tried, onClose }: { tried: Tried[]; onClose: () => void }) {
  return (
    <Dialog title={t("Test of the alerts")} onClose={onClose}>
      <ul class="rows boxed">
        {tried.map((one) => (
          <li key={one.to.host}>
            <Tag tone={one.error ? "bad" : "good"}>{one.error ? t("not sent") : t("sent")}</Tag>
            <span class="row-main">
              {destinationText(one.to)}
              {one.error && <small class="error-text"> {translated(one.error)}</small>}
            </span>
          </li>
        ))}
      </ul>
      <div class="dialog-foot">
        <Button kind="primary" onClick={onClose}>{t("Close")}</Button>
      </div>
    </Dialog>
  );
}
