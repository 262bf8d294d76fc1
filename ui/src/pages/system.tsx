// The system: the servers that keep the jobs, how they keep them, and whether that is safe.
import { useAsk } from "../ask";
import { bytes, count, duration, rate } from "../format";
import { Ago, Bar, Card, Figure, Head, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { Icon } from "../parts/icon";
import { actionText } from "../parts/operations";
import { to } from "../route";
import { t } from "../words";
import type { Operations, Server, System as Told } from "../wire";

export function System() {
  const asked = useAsk<Told>("api/system", { every: 3000, always: true });
  return (
    <>
      <Head title={t("System")} />
      <Shown answer={asked} rows={8}>
        {(told) => (
          <>
            <div class="figures">
              <Figure label={t("Topology")} value={told.topology === "one" ? t("single server") : told.topology} note={t("{n} primary|{n} primaries", { n: told.servers.length })} />
              <Figure label={t("Durability")} value={told.durability ?? profile(told.servers)} note={told.durability ? t("when an enqueue was answered") : t("by the server's settings")} />
              <Figure label={t("Clock difference")} value={duration(Math.abs(told.clockSkewMs))} note={Math.abs(told.clockSkewMs) > 1000 ? t("more than it should be") : t("the server's clock decides")} tone={Math.abs(told.clockSkewMs) > 1000 ? "warn" : ""} />
              <Figure label={t("Version of qbull")} value={told.version} note={`Python ${told.python}`} />
              <Figure label={t("Prefix")} value={told.app} note={t("the start of all names")} />
            </div>
            {told.servers.map((one) => (
              <ServerCard key={one.address} one={one} />
            ))}
            <OperationsCard />
          </>
        )}
      </Shown>
    </>
  );
}

function OperationsCard() {
  const asked = useAsk<Operations>("api/operations", { every: 3000, always: true });
  return (
    <Card title={t("Recent bulk operations")} flush>
      <Shown answer={asked} rows={3}>
        {(told) =>
          told.operations.length === 0 ? (
            <Empty icon="jobs" title={t("No bulk operations lately")} />
          ) : (
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    <th>{t("What")}</th>
                    <th>{t("Queue")}</th>
                    <th class="grow">{t("Filter")}</th>
                    <th class="num">{t("Jobs")}</th>
                    <th>{t("State")}</th>
                    <th>{t("By")}</th>
                    <th class="num">{t("When")}</th>
                  </tr>
                </thead>
                <tbody>
                  {told.operations.slice(0, 15).map((one) => (
                    <tr key={one.id} data-row tabIndex={-1}>
                      <td class="strong">{actionText(one.action)}</td>
                      <td><a href={to.queue(one.queue)}>{one.queue}</a></td>
                      <td class="grow"><span class="cut mono faint">{Object.entries(one.filter).map(([name, value]) => `${name}=${String(value)}`).join(" ")}</span></td>
                      <td class="num" data-label={t("Jobs")}>{count(one.done)}</td>
                      <td><Tag tone={one.state === "done" ? "good" : one.state === "running" ? "accent" : "bad"}>{t(one.state)}</Tag></td>
                      <td data-label={t("By")}>{one.by}</td>
                      <td class="num"><Ago at={one.startedAt} /></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Shown>
    </Card>
  );
}

/** What the settings of all servers come to, in the words of the guide. */
function profile(servers: Server[]): string {
  if (servers.some((one) => !one.appendOnly)) return t("none");
  return servers.every((one) => one.fsync === "always") ? "durable" : "fast";
}

function ServerCard({ one }: { one: Server }) {
  const warnings = [
    ...(one.eviction !== "noeviction" && one.maxMemory ? [t("The server removes names when its memory is full ({policy}): jobs can be lost. Set maxmemory-policy noeviction.", { policy: one.eviction })] : []),
    ...(one.appendOnly ? [] : [t("The append-only file is off: jobs of the last minutes are lost in a crash. Set appendonly yes.")]),
    ...(one.lastSaveOk ? [] : [t("The last write to disk has failed: see the log of the server.")]),
  ];
  return (
    <Card
      title={
        <>
          {one.product} {one.version}
        </>
      }
      aside={<span class="mono faint">{one.address}</span>}
    >
      {warnings.map((text) => (
        <div class="notice warn" key={text}>
          <Icon name="dead" />
          <div>{text}</div>
        </div>
      ))}
      <div class="server">
        <div class="server-memory">
          <div class="server-line">
            <b>{bytes(one.usedMemory)}</b>
            <span class="faint">{one.maxMemory ? t("of {size}", { size: bytes(one.maxMemory) }) : t("no limit is set")}</span>
          </div>
          <Bar value={one.usedMemory} of={one.maxMemory || one.usedMemory * 4} label={t("Memory")} tone={one.maxMemory && one.usedMemory / one.maxMemory > 0.8 ? "bad" : ""} />
        </div>
        <dl class="facts two">
          <div><dt>{t("Up for")}</dt><dd>{duration(one.uptimeSeconds * 1000)}</dd></div>
          <div><dt>{t("Commands")}</dt><dd>{rate(one.commandsPerSecond)} / s</dd></div>
          <div><dt>{t("Connections")}</dt><dd>{count(one.connectedClients)}</dd></div>
          <div><dt>{t("Replicas")}</dt><dd>{count(one.replicas)}</dd></div>
          <div><dt>{t("Append-only file")}</dt><dd>{one.appendOnly ? <Tag tone="good">{t("on")}</Tag> : <Tag tone="warn">{t("off")}</Tag>} {one.appendOnly && one.fsync && <span class="faint">fsync {one.fsync}</span>}</dd></div>
          <div><dt>{t("When memory is full")}</dt><dd>{one.eviction === "noeviction" ? <Tag tone="good">noeviction</Tag> : <Tag tone="warn">{one.eviction}</Tag>}</dd></div>
        </dl>
      </div>
    </Card>
  );
}
