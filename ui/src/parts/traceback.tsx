// A traceback: frames of libraries are folded, so that one's own code is what one sees.
import { t } from "../words";

interface Frame {
  place: string;
  lines: string[];
  library: boolean;
}

const LIBRARY = /site-packages|dist-packages|[\\/]lib[\\/]python3|[\\/]qbull[\\/]worker[\\/]|<frozen /;

/** The text before the frames, the frames, and the text after each run of them. */
export function framesOf(text: string): (string | Frame)[] {
  const parts: (string | Frame)[] = [];
  for (const line of text.replace(/\s+$/, "").split("\n")) {
    const last = parts[parts.length - 1];
    if (/^\s+File "/.test(line)) parts.push({ place: line.trim(), lines: [], library: LIBRARY.test(line) });
    else if (/^\s{4}/.test(line) && last && typeof last !== "string") last.lines.push(line);
    else parts.push(line);
  }
  return parts;
}

export function Traceback({ text, label }: { text: string; label?: string }) {
  const parts = framesOf(text);
  const groups: (string | Frame | Frame[])[] = [];
  for (const part of parts) {
    const last = groups[groups.length - 1];
    if (typeof part !== "string" && part.library) {
      if (Array.isArray(last)) last.push(part);
      else groups.push([part]);
    } else groups.push(part);
  }
  return (
    <div class="traceback mono" role="region" aria-label={label ?? t("Traceback")} tabIndex={0}>
      {groups.map((one, n) =>
        typeof one === "string" ? (
          <p key={n} class={n === groups.length - 1 ? "error-text" : "faint"}>{one}</p>
        ) : Array.isArray(one) ? (
          <details key={n}>
            <summary class="faint">{t("{n} frame of libraries|{n} frames of libraries", { n: one.length })}</summary>
            {one.map((frame, m) => <FrameLines key={m} frame={frame} />)}
          </details>
        ) : (
          <FrameLines key={n} frame={one} />
        ),
      )}
    </div>
  );
}

function FrameLines({ frame }: { frame: Frame }) {
  return (
    <div class={frame.library ? "trace faint" : "trace"}>
      <p>{frame.place}</p>
      {frame.lines.length > 0 && <pre>{frame.lines.join("\n")}</pre>}
    </div>
  );
}
