// The values that a job emits, as they come.
import { useEffect, useRef, useState } from "preact/hooks";
import { at, url } from "../api";
import { Card, Copy } from "../parts/basics";
import { t } from "../words";
import type { Job } from "../wire";

const MOST_SHOWN = 1000;
const PAUSE_MS = 2000;

interface Value {
  number: string;
  text: string;
}

export function StreamCard({ job, ended }: { job: Job; ended: boolean }) {
  const [values, setValues] = useState<Value[]>([]);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const leaving = new AbortController();
    setValues([]);
    void follow(job, leaving.signal, (one) => setValues((before) => [...before, one].slice(-MOST_SHOWN)));
    return () => leaving.abort();
  }, [job.queue, job.id]);
  useEffect(() => {
    if (!ended && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [values.length, ended]);
  if (values.length === 0) return null;
  return (
    <Card title={t("Stream")} aside={<Copy text={values.map((one) => one.text).join("\n")} />}>
      <ol class="log stream" tabIndex={0} aria-label={t("Stream")} aria-live="off" ref={list}>
        {values.map((one) => (
          <li key={one.number}>
            <span class="faint mono num">{one.number}</span>
            <span class="log-text">{one.text}</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

/** Read the stream to its end. After a break it continues behind the last value. */
async function follow(job: Job, leaving: AbortSignal, take: (value: Value) => void): Promise<void> {
  let place = "";
  while (!leaving.aborted) {
    try {
      const answer = await fetch(url(at.job(job.queue, job.id, "/stream")), { credentials: "same-origin", headers: place ? { "last-event-id": place } : {}, signal: leaving });
      if (answer.status === 204 || (answer.status >= 400 && answer.status < 500) || !answer.body) return;
      if (answer.ok) {
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          text += value;
          const events = text.split("\n\n");
          text = events.pop() ?? "";
          for (const event of events) {
            const { name, id, data } = parsed(event);
            if (name === "end") return;
            if (name !== "value") continue;
            place = id;
            take({ number: id, text: data });
          }
        }
      }
    } catch {
      if (leaving.aborted) return;
    }
    await new Promise((then) => setTimeout(then, PAUSE_MS));
  }
}

function parsed(event: string): { name: string; id: string; data: string } {
  const found = { name: "", id: "", data: "" };
  for (const line of event.split("\n")) {
    if (line.startsWith("event: ")) found.name = line.slice(7);
    else if (line.startsWith("id: ")) found.id = line.slice(4);
    else if (line.startsWith("data: ")) found.data += line.slice(6);
  }
  return found;
}
