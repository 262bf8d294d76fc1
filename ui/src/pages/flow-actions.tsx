// Retry and cancel a flow as a whole.
import { at, post } from "../api";
import { Button } from "../parts/basics";
import { confirm } from "../parts/dialog";
import { say } from "../parts/toast";
import { t } from "../words";
import type { FlowChange } from "../wire";

interface Of {
  queue: string;
  /** Any job of it. */
  id: string;
  counts: Record<string, number>;
  then: () => Promise<void>;
  words?: boolean;
}

export function FlowButtons({ queue, id, counts, then, words }: Of) {
  const of = (...states: string[]) => states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  const open = of("waiting", "active", "delayed");
  const ended = of("failed", "cancelled");
  const act = async (verb: "cancel" | "retry") => {
    const done = await post<FlowChange>(at.job(queue, id, `/flow/${verb}`));
    say(verb === "cancel" ? t("{n} job was cancelled|{n} jobs were cancelled", { n: done.jobs }) : t("{n} job runs again|{n} jobs run again", { n: done.jobs }));
    await then();
  };
  const retry = () =>
    confirm({
      title: t("Retry the flow?"),
      text: t("{n} failed or cancelled job runs again, in order. Completed jobs do not.|{n} failed or cancelled jobs run again, in order. Completed jobs do not.", { n: ended }),
      action: t("Retry the flow"),
      submit: () => act("retry"),
    });
  const cancel = () =>
    confirm({
      title: t("Cancel the flow?"),
      text: t("{n} unfinished job is cancelled.|{n} unfinished jobs are cancelled.", { n: open }),
      action: t("Cancel the flow"),
      danger: true,
      submit: () => act("cancel"),
    });
  return (
    <>
      {ended > 0 && <Button small kind={words ? "plain" : "ghost"} icon="retry" label={words ? undefined : t("Retry the flow")} onClick={retry}>{words && t("Retry the flow")}</Button>}
      {open > 0 && <Button small kind={words ? "plain" : "ghost"} icon="cancel" label={words ? undefined : t("Cancel the flow")} onClick={cancel}>{words && t("Cancel the flow")}</Button>}
    </>
  );
}
