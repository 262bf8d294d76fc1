// The log of a job: it follows while the job runs, and can be searched and filtered by level and attempt.
import { useEffect, useRef, useState } from "preact/hooks";
import { at } from "../api";
import { useAsk } from "../ask";
import { moment, timeOfDay } from "../format";
import { Card, Copy } from "../parts/basics";
import { t, type Text } from "../words";
import type { Job, Logs } from "../wire";

const NEAR_PX = 24;
const LEVELS = ["debug", "info", "warning", "error"] as const;
type Level = (typeof LEVELS)[number];
const atLeast: Record<Level, Text> = { debug: "All levels", info: "info and above", warning: "warning and above", error: "errors only" };

export function LogCard({ job, ended }: { job: Job; ended: boolean }) {
  const asked = useAsk<Logs>(at.job(job.queue, job.id, "/logs"), { every: ended ? 0 : 1000, always: true });
  const [sought, setSought] = useState("");
  const [follow, setFollow] = useState(true);
  const list = useRef<HTMLOListElement>(null);
  const all = asked.data?.logs ?? [];
  const [least, setLeast] = useState<Level>("debug");
  const [attempt, setAttempt] = useState(0);
  const attempts = [...new Set(all.map((one) => one.attempt))].sort((a, b) => a - b);
  const lines = all.filter((one) => (!attempt || one.attempt === attempt) && LEVELS.indexOf(one.level ?? "info") >= LEVELS.indexOf(least) && one.text.toLowerCase().includes(sought.toLowerCase()));
  useEffect(() => {
    void asked.again(); // the last lines come with the end
  }, [ended]);
  useEffect(() => {
    if (follow && !ended && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [lines.length, follow, ended]);
  const scrolled = () => {
    const box = list.current;
    if (box && !ended) setFollow(box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX);
  };
  return (
    <Card
      title={t("Log")}
      aside={
        all.length > 0 && (
          <>
            <input class="log-search" aria-label={t("Search the log")} placeholder={t("Search the log")} value={sought} onInput={(event) => setSought(event.currentTarget.value)} />
            <select aria-label={t("Level")} value={least} onInput={(event) => setLeast(event.currentTarget.value as Level)}>
              {LEVELS.map((one) => <option key={one} value={one} selected={one === least}>{t(atLeast[one])}</option>)}
            </select>
            {attempts.length > 1 && (
              <select aria-label={t("Which attempt")} value={attempt} onInput={(event) => setAttempt(Number(event.currentTarget.value))}>
                <option value={0} selected={attempt === 0}>{t("All attempts")}</option>
                {attempts.map((n) => <option key={n} value={n} selected={n === attempt}>{t("Attempt {n}", { n })}</option>)}
              </select>
            )}
            {!ended && <label class="log-follow"><input type="checkbox" checked={follow} onChange={() => setFollow(!follow)} /> {t("Follow")}</label>}
            <Copy text={lines.map((one) => `${one.at} ${one.level ?? "info"} ${one.text}`).join("\n")} />
          </>
        )
      }
    >
      {all.length === 0 ? (
        <p class="faint">{asked.error ? asked.error.message : t("The task has logged nothing.")}</p>
      ) : (
        <ol class="log" tabIndex={0} aria-label={t("Log")} ref={list} onScroll={scrolled}>
          {lines.map((one, n) => (
            <li key={n} class={`log-${one.level ?? "info"}`}>
              <time class="faint mono" dateTime={one.at} title={moment(one.at)}>
                {timeOfDay(one.at, 3)}
              </time>
              <span class="log-attempt faint" title={t("Attempt")}>{one.attempt}</span>
              {one.level && one.level !== "info" && <b class="log-level">{one.level}</b>}
              <span class="log-text">{one.text}</span>
            </li>
          ))}
          {lines.length === 0 && <li class="faint">{t("No line matches")}</li>}
        </ol>
      )}
    </Card>
  );
}
