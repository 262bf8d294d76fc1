// The audit log: who did what, why and from where. The address holds the search; the export has the same entries.
import { useEffect, useState } from "preact/hooks";
import { get, query, url } from "../api";
import { useAsk } from "../ask";
import { moment, withShortIds } from "../format";
import { Ago, Button, Card, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { AskForReasons } from "../parts/reason";
import { place, refine } from "../route";
import { operator } from "../session";
import { t, type Text } from "../words";
import type { AuditEntry, AuditPage } from "../wire";

const PAGE = 50;
const TYPING_MS = 300;

export function AuditCard() {
  const search = place.value.query.get("find") ?? "";
  return (
    <Card title={t("Audit")} note={t("Who did what, the newest first. Calls that were refused are here too.")} aside={<Tools search={search} />} flush>
      <Entries key={search} search={search} />
    </Card>
  );
}

function Tools({ search }: { search: string }) {
  const [typed, setTyped] = useState(search);
  useEffect(() => {
    const timer = setTimeout(() => refine({ find: typed.trim() }, { replace: true }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <>
      {operator.value && <AskForReasons />}
      <div class="search" data-filter>
        <input type="search" aria-label={t("Search the audit log")} placeholder={t("Search the audit log")} value={typed} maxLength={300} onInput={(event) => setTyped(event.currentTarget.value)} />
      </div>
      <a class="button small" href={url(`api/audit/export${query({ search })}`).href} download="qbull-audit.jsonl" title={t("The audit log as JSON lines, with the links of its chain")}>{t("Export")}</a>
    </>
  );
}

function Entries({ search }: { search: string }) {
  const asked = useAsk<AuditPage>(`api/audit${query({ limit: PAGE, search })}`, { every: 5000, always: true });
  const [older, setOlder] = useState<{ entries: AuditEntry[]; next: string | null } | null>(null);
  const more = async (next: string) => {
    const told = await get<AuditPage>(`api/audit${query({ limit: PAGE, before: next, search })}`);
    setOlder((before) => ({ entries: [...(before?.entries ?? []), ...told.entries], next: told.next }));
  };
  return (
    <Shown answer={asked} rows={6}>
      {(told) => {
        const last = told.entries[told.entries.length - 1];
        const before = older?.entries.filter((one) => !last || one.id < last.id) ?? [];
        const all = [...told.entries, ...before];
        const next = older ? older.next : told.next;
        if (!all.length) return <Empty icon="access" title={search ? t("No entry matches") : t("Nothing was done yet")} />;
        return (
          <>
            <div class="scroll">
              <table class="dense">
                <thead>
                  <tr>
                    <th>{t("Who")}</th>
                    <th>{t("What")}</th>
                    <th class="grow">{t("On what")}</th>
                    <th>{t("Reason")}</th>
                    <th>{t("Answer")}</th>
                    <th>{t("From address")}</th>
                    <th class="num">{t("When")}</th>
                  </tr>
                </thead>
                <tbody>{all.map((one) => <Entry key={one.id} one={one} />)}</tbody>
              </table>
            </div>
            {next && (
              <div class="list-foot">
                <Button onClick={() => more(next)}>{t("Show more")}</Button>
              </div>
            )}
          </>
        );
      }}
    </Shown>
  );
}

function Entry({ one }: { one: AuditEntry }) {
  return (
    <tr data-row tabIndex={-1}>
      <td>
        <span class="nowrap">
          <span class="strong">{one.who}</span> {one.how !== "nobody" && <small class="faint">{one.how}</small>}
        </span>
      </td>
      <td class="nowrap">
        {t(one.action as Text)} {one.count > 1 && <Tag>× {one.count}</Tag>}
      </td>
      <td class="grow">
        <span class="cut">
          <span class="mono" title={one.target}>{withShortIds(one.target)}</span> <small class="faint" title={details(one)}>{withShortIds(details(one))}</small>
        </span>
      </td>
      <td class="audit-reason" data-label={t("Reason")}>{(one.reason === "Undo" ? t("Undo") : one.reason) || <span class="faint">–</span>}</td>
      <td><Tag tone={one.status < 300 ? "good" : "bad"}>{one.status}</Tag></td>
      <td class="mono faint nowrap">{one.address}</td>
      <td class="num" title={moment(one.at)}><Ago at={one.at} /></td>
    </tr>
  );
}

function details(one: AuditEntry): string {
  return Object.entries(one.detail)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ");
}
