// What can be done with the jobs that were chosen: some of them one by one, or all that match, by the server.
import { useEffect, useState } from "preact/hooks";
import { at, get, post, query, remove } from "../api";
import { count } from "../format";
import { changes } from "../live";
import { Button, type State } from "../parts/basics";
import { confirm } from "../parts/dialog";
import type { IconName } from "../parts/icon";
import { each, operate } from "../parts/operations";
import { say } from "../parts/toast";
import { admin } from "../session";
import { t, translated, type Text } from "../words";
import type { Matching } from "../wire";
import type { JobFilter } from "./jobs-filter";

type Action = "retry" | "promote" | "cancel" | "remove";

const actions: Record<State, Action[]> = {
  waiting: ["cancel", "remove"],
  active: ["cancel"],
  delayed: ["promote", "cancel", "remove"],
  completed: ["remove"],
  failed: ["retry", "remove"],
  cancelled: ["retry", "remove"],
};
const looks: Record<Action, { icon: IconName; text: Text; danger?: boolean }> = {
  retry: { icon: "retry", text: "Retry" },
  promote: { icon: "promote", text: "Run now" },
  cancel: { icon: "cancel", text: "Cancel", danger: true },
  remove: { icon: "trash", text: "Remove", danger: true },
};

interface BulkProps {
  queue: string;
  state: State;
  filter: JobFilter;
  chosen: ReadonlySet<string>;
  all: boolean;
  shown: number;
  more: boolean;
  setAll: (all: boolean) => void;
  clear: () => void;
  then: () => Promise<void>;
}

export function Bulk({ queue, state, filter, chosen, all, shown, more, setAll, clear, then }: BulkProps) {
  const [matching, setMatching] = useState<Matching | null>(null);
  const whole = more && chosen.size === shown;
  useEffect(() => {
    if (whole) void get<Matching>(at.queue(queue, `/matching${query({ state, ...filter })}`)).then(setMatching, () => setMatching(null));
  }, [whole]);
  const many = matching ? `${count(matching.count)}${matching.exact ? "" : "+"}` : "";
  const act = (action: Action) => {
    const look = looks[action];
    const n = all ? many : count(chosen.size);
    confirm({
      title: t("{action}: {n} jobs?", { action: t(look.text), n }),
      text: words(action),
      action: `${t(look.text)} (${n})`,
      danger: look.danger,
      submit: async () => {
        if (all) void operate(queue, { action, state, ...filter }).then((ended) => said(action, ended.done, ended.error).then(then));
        else void each(action, queue, [...chosen], (id) => one(queue, id, action)).then(({ done, error }) => said(action, done, error).then(then));
        clear();
      },
    });
  };
  return (
    <>
      <b>{all ? t("all {n} that match are chosen", { n: many }) : t("{n} is chosen|{n} are chosen", { n: chosen.size })}</b>
      {whole && !all && matching && (
        <button type="button" class="as-link" onClick={() => setAll(true)}>{t("Choose all {n} that match", { n: many })}</button>
      )}
      <button type="button" class="as-link" onClick={clear}>{t("Choose none")}</button>
      <span class="push" />
      {actions[state].filter((action) => admin.value || action !== "remove").map((action) => (
        <Button key={action} small icon={looks[action].icon} kind={looks[action].danger ? "danger" : "primary"} onClick={() => act(action)}>
          {t(looks[action].text)}
        </Button>
      ))}
    </>
  );
}

function words(action: Action): string {
  if (action === "retry") return t("They are enqueued again with all their attempts and the same arguments.");
  if (action === "promote") return t("They run now instead of later.");
  if (action === "cancel") return t("Waiting jobs do not run; running jobs are stopped if that is possible.");
  return t("They are deleted permanently. This cannot be undone.");
}

async function said(action: Action, done: number, error: string | null): Promise<void> {
  changes.value++;
  say(error === null ? t("{action}: {n} job|{action}: {n} jobs", { action: t(looks[action].text), n: done }) : translated(error), { bad: error !== null });
}

export function one(queue: string, id: string, action: Action): Promise<unknown> {
  return action === "remove" ? remove(at.job(queue, id)) : post(at.job(queue, id, `/${action}`));
}
