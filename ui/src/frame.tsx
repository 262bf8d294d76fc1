// The frame around every view: where one can go, who is here, and whether the numbers on show are still true.
import { useEffect, useState } from "preact/hooks";
import { unrefreshed } from "./ask";
import type { Me } from "./wire";
import { timeOfDay } from "./format";
import { useKeys } from "./keyboard";
import { firing, useVerdict } from "./health";
import { deadOf, knownAt, link, pauseLive, queues, stale } from "./live";
import { Button, Card, Head } from "./parts/basics";
import { Empty, Loading, WayOn } from "./parts/blank";
import { Help } from "./parts/help";
import { Icon, Mark } from "./parts/icon";
import { Operations } from "./parts/operations";
import { Palette } from "./parts/palette";
import { follow, place } from "./route";
import { logOut } from "./session";
import { dark, nextTheme } from "./theme";
import { entries, load, loadAll, ready, views } from "./views";
import { language, otherLanguage, speak, t } from "./words";

export function Frame({ me }: { me: Me }) {
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const path = place.value.path;
  useVerdict(me.queues);
  useKeys({ palette: () => setPalette(true), help: () => setHelp(true) });
  useEffect(loadAll, []);
  useEffect(() => setMenu(false), [place.value]);

  const entry = entries.find((one) => one.path === path || one.also?.includes(path));
  useEffect(() => {
    const where = me.environment ? `[${me.environment}] ` : "";
    document.title = where + (entry ? `${t(entry.text)} · qbull` : "qbull");
  }, [entry, language.value, me.environment]);

  return (
    <div class={`frame ${me.environment ? `in-${kindOf(me.environment)}` : ""} ${menu ? "menu-open" : ""} ${stale.value ? "is-stale" : ""}`} onClick={follow}>
      <a class="skip" href="#main" onClick={skip}>
        {t("Skip to the content")}
      </a>
      <aside class="side">
        <div class="brand">
          <Mark />
          <span class="brand-name">qbull</span>
          <span class="brand-app" title={t("The prefix of this app")}>{me.app}</span>
          {me.environment && <EnvironmentBadge name={me.environment} />}
        </div>
        <button type="button" class="finder" onClick={() => setPalette(true)}>
          <Icon name="search" />
          <span>{t("Find or run …")}</span>
          <kbd>Ctrl K</kbd>
        </button>
        <nav aria-label={t("Views")}>
          {entries.map((one) => (
            <a key={one.path} href={one.href()} aria-current={entry === one ? "page" : undefined}>
              <Icon name={one.icon} />
              <span>{t(one.text)}</span>
              {one.path === "dead" && <FailedCount />}
              {one.path === "alerts" && <FiringCount />}
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
            <button type="button" class="button ghost small" onClick={() => void speak(otherLanguage())} lang={otherLanguage()}>
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
          {me.environment && <EnvironmentBadge name={me.environment} />}
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
  return path in views ? <Loading /> : <Nowhere />;
}

function Nowhere() {
  return (
    <>
      <Head title={t("There is nothing here")} under={t("The address may be an old one.")} />
      <Card>
        <WayOn />
      </Card>
    </>
  );
}

/** Production must be unmistakable, under any of its names. */
function kindOf(environment: string): "production" | "other" {
  return /^(prod|production|live|prd)\b/i.test(environment) ? "production" : "other";
}

function EnvironmentBadge({ name }: { name: string }) {
  return <span class={`environment ${kindOf(name)}`} title={t("The environment that this dashboard acts on")}>{name}</span>;
}

function FailedCount() {
  const all = Object.values(queues.value ?? {}).reduce((sum, one) => sum + deadOf(one), 0);
  return all ? <span class="nav-count quiet">{all > 9999 ? "9999+" : all}</span> : null;
}

/** The problems of the verdict that want somebody. */
function FiringCount() {
  const n = firing.value;
  return n ? <span class="nav-count" aria-label={t("{n} is firing|{n} are firing", { n })}>{n}</span> : null;
}

function LiveSwitch() {
  const state = link.value;
  const texts = { live: t("Live"), paused: t("Paused"), away: t("Interrupted"), late: t("Not answering"), joining: t("Connecting") };
  return (
    <button
      type="button"
      class={`live ${state}`}
      onClick={() => pauseLive(state !== "paused")}
      title={state === "paused" ? t("Resume live updates") : t("Pause live updates")}
      aria-pressed={state !== "paused"}
    >
      <span class="live-dot" aria-hidden="true" />
      {texts[state]}
    </button>
  );
}

/** The numbers on show may be old: every view says as of when, and for what reason. */
function Stale() {
  const old = unrefreshed.value;
  if (!stale.value && old) {
    return (
      <div class="stale" role="status">
        <Icon name="dead" />
        <b class="nowrap">{t("As of {time}", { time: timeOfDay(old.since) })}</b>
        <span>{t("A part of this view could not be refreshed: {why}", { why: old.why })}</span>
      </div>
    );
  }
  if (!stale.value) return null;
  const time = timeOfDay(knownAt.value);
  const paused = link.value === "paused";
  const texts = {
    late: t("The job server does not answer."),
    away: t("Live updates are interrupted."),
    paused: t("Live updates are paused."),
  };
  return (
    <div class="stale" role={paused ? "status" : "alert"}>
      <Icon name={paused ? "pause" : "dead"} />
      <b class="nowrap">{t("As of {time}", { time })}</b>
      <span>{texts[link.value as keyof typeof texts]}</span>
      {paused && <Button small onClick={() => pauseLive(false)}>{t("Resume live updates")}</Button>}
    </div>
  );
}
