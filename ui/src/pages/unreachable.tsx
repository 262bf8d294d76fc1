// Instead of a view if the page is opened while the job server is away: says so, and tries again by itself.
import { useEffect } from "preact/hooks";
import { timeOfDay } from "../format";
import { Button } from "../parts/basics";
import { Icon } from "../parts/icon";
import { look, type Unreachable } from "../session";
import { t } from "../words";

const AGAIN_MS = 3000;

export function ServerAway({ away }: { away: Unreachable }) {
  useEffect(() => {
    const timer = setTimeout(() => void look(), AGAIN_MS);
    return () => clearTimeout(timer);
  }, [away]);
  return (
    <main class="door">
      <div class="blank bad" role="alert">
        <span class="blank-icon">
          <Icon name="dead" size={22} />
        </span>
        <h1 class="blank-title">{t("The job server does not answer.")}</h1>
        <div class="blank-text">
          {away.message} {t("Since {time}; tried again every few seconds.", { time: timeOfDay(away.since) })}
        </div>
        <Button icon="retry" onClick={look}>{t("Try again")}</Button>
      </div>
    </main>
  );
}
