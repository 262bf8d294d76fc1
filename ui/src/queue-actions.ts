// Pause and resume a queue, with undo.
import { at, post } from "./api";
import { doing, undoing } from "./parts/toast";
import { t } from "./words";

/** At once, and back at once: jobs that wait meanwhile are not lost. */
export async function pauseOrResume(name: string, paused: boolean, then?: () => unknown): Promise<void> {
  const call = (verb: "pause" | "resume") => async () => {
    await post(at.queue(name, `/${verb}`));
    then?.();
  };
  const [act, back] = paused ? (["resume", "pause"] as const) : (["pause", "resume"] as const);
  const said = { pause: t("{queue} is paused", { queue: name }), resume: t("{queue} is resumed", { queue: name }) };
  await doing(call(act), said[act], { undo: () => undoing(call(back), said[back]) });
}
