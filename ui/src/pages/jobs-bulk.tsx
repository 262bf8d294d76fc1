// What can be done with the jobs that were chosen: some of them one by one, or all that match, by the server.
import { at, because, post, reasonNow, remove } from "../api";
import { count } from "../format";
import { changes, queues } from "../live";
import { Button, type State } from "../parts/basics";
import { confirm } from "../parts/dialog";
import type { IconName } from "../parts/icon";
import { each, operate } from "../parts/operations";
import { say } from "../parts/toast";
import { admin } from "../session";
import { t, translated, type Text } from "../words";
import type { Facets, Job } from "../wire";

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
  query: string;
  facets: Facets | undefined;
  chosen: Job[];
  all: boolean;
  /** All shown jobs are chosen, and there are more. */
  whole: boolean;
  setAll: (all: boolean) => void;
  clear: () => void;
  then: () => Promise<void>;
}

export function Bulk({ query, facets, chosen, all, whole, setAll, clear, then }: BulkProps) {
  const values = (field: string) => facets?.facets.find((one) => one.field === field);
  const states = values("state");
  const exact = states?.exact ?? false;
  const matching = states?.values.reduce((sum, one) => sum + one.count, 0) ?? 0;
  const many = `${count(matching)}${exact ? "" : "+"}`;
  const there = [...new Set(all ? (states?.values.map((one) => one.value) ?? []) : chosen.map((job) => job.state))] as State[];
  const possible = (Object.keys(looks) as Action[]).filter((action) => there.length > 0 && there.every((state) => actions[state].includes(action)));
  const act = (action: Action) => {
    const look = looks[action];
    const n = all ? many : count(chosen.length);
    confirm({
      title: t("{action}: {n} jobs?", { action: t(look.text), n }),
      text: words(action),
      action: `${t(look.text)} (${n})`,
      danger: look.danger,
      submit: async () => {
        const work = all ? overAll(action, query, there, exact ? values("queue")?.values.map((one) => one.value) : undefined) : overChosen(action, chosen);
        void work.then(({ done, error }) => said(action, done, error).then(then));
        clear();
      },
    });
  };
  return (
    <>
      <b>{all ? t("all {n} matching are selected", { n: many }) : t("{n} selected", { n: chosen.length })}</b>
      {whole && !all && facets && (
        <button type="button" class="as-link" onClick={() => setAll(true)}>{t("Select all {n} matching", { n: many })}</button>
      )}
      <button type="button" class="as-link" onClick={clear}>{t("Clear selection")}</button>
      <span class="push" />
      {possible.length === 0 && <span class="faint">{t("Select jobs of one state to act on them")}</span>}
      {possible.filter((action) => admin.value || action !== "remove").map((action) => (
        <Button key={action} small icon={looks[action].icon} kind={looks[action].danger ? "danger" : "primary"} onClick={() => act(action)}>
          {t(looks[action].text)}
        </Button>
      ))}
    </>
  );
}

interface Outcome {
  done: number;
  error: string | null;
}

/** One operation of the server for each queue and state, one after the other. */
async function overAll(action: Action, query: string, states: State[], names = Object.keys(queues.value ?? {})): Promise<Outcome> {
  let done = 0;
  const reason = reasonNow();
  for (const queue of names) {
    for (const state of states) {
      try {
        const ended = await starting(reason, () => operate(queue, { action, state, q: query }));
        done += ended.done;
        if (ended.error) return { done, error: ended.error };
      } catch (why) {
        return { done, error: (why as Error).message };
      }
    }
  }
  return { done, error: null };
}

/** Each call of the work gets the reason of the dialog, which has closed meanwhile. */
function starting<T>(reason: string, call: () => Promise<T>): Promise<T> {
  let started: Promise<T> | undefined;
  void because(reason, async () => void (started = call()));
  return started!;
}

async function overChosen(action: Action, chosen: Job[]): Promise<Outcome> {
  const ended: Outcome = { done: 0, error: null };
  const reason = reasonNow();
  for (const queue of new Set(chosen.map((job) => job.queue))) {
    const ids = chosen.filter((job) => job.queue === queue).map((job) => job.id);
    const { done, error } = await each(action, queue, ids, (id) => starting(reason, () => one(queue, id, action)));
    ended.done += done;
    ended.error ??= error;
  }
  return ended;
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
