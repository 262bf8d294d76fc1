import type { Job } from "./wire.js";

/** An event of `GET /api/events`. "gap" means that some were left out: read the lists. */
export type QbullEvent =
  | { event: "snapshot" | "stats"; data: Record<string, unknown> }
  | {
      event: "job";
      data: Pick<Job, "queue" | "id" | "task" | "state" | "error" | "finishedAt">;
    }
  | { event: "progress"; data: Record<string, unknown> }
  | { event: "gap" | "bye"; data: Record<string, unknown> };

export interface ServerSentEvent {
  id: string;
  event: string;
  data: string;
}

/** Read server-sent events from a response. */
export async function* serverSentEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerSentEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const parts = text.split("\n\n");
      text = parts.pop() ?? "";
      for (const part of parts) {
        const found = parsed(part);
        if (found.data) yield found;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parsed(part: string): ServerSentEvent {
  const found: ServerSentEvent = { id: "", event: "message", data: "" };
  for (const line of part.split("\n")) {
    const at = line.indexOf(": ");
    const name = line.slice(0, at);
    if (name === "id" || name === "event" || name === "data") found[name] = line.slice(at + 2);
  }
  return found;
}
