// Help: what the keyboard can do, and what the words mean.
import { language, languages, speak, t, type Text } from "../words";
import { Choice } from "./field";
import { entries } from "../views";
import { StateBadge } from "./basics";
import { Dialog } from "./dialog";

const keys: [string[], Text][] = [
  [["Ctrl", "K"], "Search views, queues and jobs, or run a command"],
  [["/"], "To the filter"],
  [["j"], "Next row"],
  [["k"], "Row before"],
  [["Enter"], "Open the row"],
  [["x"], "Select the row"],
  [["Esc"], "Close"],
  [["?"], "This help"],
];

const states: [string, Text][] = [
  ["waiting", "could run now, or waits for the job before it with the same key"],
  ["active", "a worker has it"],
  ["delayed", "runs later: it was asked for later, or waits for its next attempt"],
  ["completed", "ended well"],
  ["failed", "a dead letter: all attempts failed; retry it when the cause is gone"],
  ["cancelled", "somebody cancelled it, or it expired"],
];

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={t("Help and keys")} onClose={onClose} wide>
      <div class="help">
        <section>
          <h3>{t("Keys")}</h3>
          <dl>
            {keys.map(([combination, text]) => (
              <div key={text}>
                <dt>{combination.map((one) => <kbd key={one}>{one}</kbd>)}</dt>
                <dd>{t(text)}</dd>
              </div>
            ))}
          </dl>
        </section>
        <section>
          <h3>{t("Go to")}</h3>
          <dl>
            {entries.map((one) => (
              <div key={one.path}>
                <dt>
                  <kbd>g</kbd>
                  <kbd>{one.letter}</kbd>
                </dt>
                <dd>{t(one.text)}</dd>
              </div>
            ))}
          </dl>
        </section>
        <section>
          <h3>{t("Language")}</h3>
          <Choice label={t("Language")} value={language.value} options={languages} onPick={(one) => void speak(one)} />
        </section>
        <section class="help-states">
          <h3>{t("States of a job")}</h3>
          <dl>
            {states.map(([state, text]) => (
              <div key={state}>
                <dt>
                  <StateBadge state={state} />
                </dt>
                <dd>{t(text)}</dd>
              </div>
            ))}
          </dl>
        </section>
      </div>
    </Dialog>
  );
}
