// JSON, whole and in colours. What a job says is text here, whatever it looks like.
import type { ComponentChildren } from "preact";
import { Copy } from "./basics";

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;
const COLOURED = 60_000; // characters; what is longer is shown in one colour

export function Json({ value, label }: { value: unknown; label: string }) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return (
    <div class="code-box">
      <pre class="code" tabIndex={0} role="region" aria-label={label}>
        {text.length > COLOURED ? text : coloured(text)}
      </pre>
      <Copy text={text} />
    </div>
  );
}

function coloured(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let from = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [, string, colon, word, number] = match;
    parts.push(text.slice(from, match.index));
    const kind = string ? (colon ? "j-name" : "j-text") : word ? "j-word" : "j-number";
    parts.push(<span class={kind}>{string ?? word ?? number}</span>);
    if (colon) parts.push(colon);
    from = match.index + match[0].length;
  }
  parts.push(text.slice(from));
  return parts;
}

export function Plain({ text, label }: { text: string; label: string }) {
  return (
    <div class="code-box">
      <pre class="code" tabIndex={0} role="region" aria-label={label}>
        {text}
      </pre>
      <Copy text={text} />
    </div>
  );
}
