// The frame around every view: where one can go, who is here, and whether what is shown is still true.
import { useEffect, useState } from "preact/hooks";
import type { Me } from "./wire";
import { timeOfDay } from "./format";
import { useKeys } from "./keyboard";
import { knownAt, link, pauseLive, queues } from "./live";
import { Button } from "./parts/basics";
import { Empty, Loading } from "./parts/blank";
import { Help } from "./parts/help";
import { Icon, Mark } from "./parts/icon";
import { Operations } from "./parts/operations";
import { Palette } from "./parts/palette";
import { follow, place } from "./route";
import { logOut } from "./session";
import { dark, nextTheme } from "./theme";
import { entries, load, loadAll, ready, views } from "./views";
import { language, speak, t } from "./words";

export function Frame({ me }: { me: Me }) {
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const path = place.value.path;
  useKeys({ palette: () => setPalette(true), help: () => setHelp(true) });
  useEffect(loadAll, []);
  useEffect(() => setMenu(false), [place.value]);

  const entry = entries.find((one) => one.path === path || one.also?.includes(path));
  useEffect(() => {
    document.title = entry ? `${t(entry.text)} · qbull` : "qbull";
  }, [entry, language.value]);

  return (
    <div class={`frame ${menu ? "menu-open" : ""}`} onClick={follow}>
      <a class="skip" href="#main" onClick={skip}>
        {t("Skip to the content")}
      </a>
      <aside class="side">
        <div class="brand">
          <Mark />
          <span class="brand-name">qbull</span>
          <span class="brand-app" title={t("The prefix of this app")}>{me.app}</span>
        </div>
        <button type="button" class="finder" onClick={() => setPalette(true)}>
          <Icon name="search" />
          <span>{t("Find or do …")}</span>
          <kbd>Ctrl K</kbd>
        </button>
        <nav aria-label={t("Views")}>
          {entries.map((one) => (
            <a key={one.path} href={one.href()} aria-current={entry === one ? "page" : undefined}>
              <Icon name={one.icon} />
              <span>{t(one.text)}</span>
              {one.path === "dead" && <FailedCount />}
            </a>
          ))}
        </nav>
        <div class="side-foot">
          <LiveSwitch />
          <div class="who">
            <span class="face" aria-hidden="true">{me.name.slice(0, 1).toUpperCase()}</span>
            <span class="who-words">
              <b title={me.name}>{me.name}</b>
              <small>{t(me.role)} · {me.version}</small>
            </span>
            <Button kind="ghost" small icon="leave" label={t("Log out")} onClick={logOut} />
          </div>
          <div class="tools">
            <Button kind="ghost" small icon={dark.value ? "sun" : "moon"} label={dark.value ? t("Light colours") : t("Dark colours")} onClick={nextTheme} />
            <button type="button" class="button ghost small" onClick={() => void speak(language.value === "en" ? "es" : "en")} lang={language.value === "en" ? "es" : "en"}>
              {language.value === "en" ? "Español" : "English"}
            </button>
            <Button kind="ghost" small icon="help" label={t("Help and keys")} onClick={() => setHelp(true)} />
          </div>
        </div>
      </aside>
      <div class="body">
        <div class="topline">
          <button type="button" class="button ghost icon-only menu-button" aria-label={t("Menu")} aria-expanded={menu} onClick={() => setMenu(!menu)}>
            <Icon name="menu" />
          </button>
          <LiveSwitch />
        </div>
        <Stale />
        <main id="main" tabIndex={-1}>
          <View path={path} />
        </main>
      </div>
      <Operations />
      {palette && <Palette onClose={() => setPalette(false)} />}
      {help && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

/** Not by the address: the page has a base, and `#main` would lead to that. */
function skip(event: MouseEvent): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function View({ path }: { path: string }) {
  const [, again] = useState(0);
  const [broken, setBroken] = useState(false);
  const Found = ready(path);
  useEffect(() => {
    if (!Found && path in views) {
      load(path)
        .then(() => again((n) => n + 1))
        .catch(() => setBroken(true)); // the server has newer files than this page
    }
  }, [path, Found]);
  if (Found) return <Found key={path} />;
  if (broken) {
    return (
      <Empty icon="failed" title={t("This could not be loaded")}>
        <Button icon="retry" onClick={() => location.reload()}>{t("Load the page again")}</Button>
      </Empty>
    );
  }
  return path in views ? <Loading /> : <Empty icon="search" title={t("There is nothing here")}>{t("The address may be an old one.")}</Empty>;
}

function FailedCount() {
  const all = Object.values(queues.value ?? {}).reduce((sum, one) => sum + one.failed, 0);
  return all ? <span class="nav-count">{all > 9999 ? "9999+" : all}</span> : null;
}

function LiveSwitch() {
  const state = link.value;
  const text = state === "live" ? t("Live") : state === "paused" ? t("Paused") : state === "away" ? t("Interrupted") : t("Connecting");
  return (
    <button
      type="button"
      class={`live ${state}`}
      onClick={() => pauseLive(state !== "paused")}
      title={state === "paused" ? t("Resume live updates") : t("Pause live updates")}
      aria-pressed={state !== "paused"}
    >
      <span class="live-dot" aria-hidden="true" />
      {text}
    </button>
  );
}

/** What is shown may be old: that is said, and since when. */
function Stale() {
  const [late, setLate] = useState(false);
  const away = link.value === "away";
  useEffect(() => {
    if (!away) return setLate(false);
    const timer = setTimeout(() => setLate(true), 1500); // a short break is not worth a word
    return () => clearTimeout(timer);
  }, [away]);
  if (!away || !late) return null;
  return (
    <div class="stale" role="alert">
      <Icon name="dead" />
      {t("Live updates are interrupted. What you see is from {at}; the page tries again by itself.", { at: timeOfDay(knownAt.value) })}
    </div>
  );
}
