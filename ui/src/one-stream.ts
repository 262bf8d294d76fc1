// One stream for all tabs of a browser: the tabs elect one that reads it and passes every event on to the others.
// A browser opens at most six connections to a server without HTTP/2, so a stream for each tab would lock out the seventh.
// It needs BroadcastChannel only: locks and workers are not to be had on pages without TLS, or with this page's content policy.

export interface WatchedJob {
  queue: string;
  job: string;
}

type Message =
  | { kind: "lead"; from: string }
  | { kind: "leave"; from: string; heir: string }
  | { kind: "hello"; from: string; job: WatchedJob | null }
  | { kind: "gone"; from: string }
  | { kind: "event"; from: string; text: string }
  | { kind: "state"; from: string; state: unknown };

export interface Member {
  /** Read the stream from now on. When the signal aborts, another tab has taken over. */
  lead: (signal: AbortSignal) => void;
  /** An event of the stream, in the tab that reads it and in all others. */
  take: (text: string) => void;
  /** The leader's knowledge, for a tab that has just come. */
  state: () => unknown;
  join: (state: unknown) => void;
  /** Another tab wants to hear of a job, or does no longer. */
  wishes: () => void;
}

const LEAD_MS = 1000;
const SILENT_MS = 2200; // a leader that crashed is replaced after that
const HEIR_MS = 400; // for the tab that a leader has named
const MOST_WATCHED = 20;

export class OneStream {
  private readonly me = crypto.getRandomValues(new Uint32Array(2)).join("-");
  private channel: BroadcastChannel | null = null;
  private leading: AbortController | null = null;
  private leader = "";
  private silence = 0;
  private pulse = 0;
  private own: WatchedJob | null = null;
  /** The other tabs, as far as the leader knows, and the jobs that they show. */
  private others = new Map<string, WatchedJob | null>();

  constructor(private readonly member: Member) {
    addEventListener("pagehide", () => this.leave());
  }

  get leads(): boolean {
    return this.leading !== null;
  }

  get joined(): boolean {
    return this.channel !== null;
  }

  /** All jobs that some tab wants to hear of. */
  get watched(): WatchedJob[] {
    const all = [this.own, ...this.others.values()].filter((one) => one !== null);
    return [...new Map(all.map((one) => [`${one.queue} ${one.job}`, one])).values()].slice(0, MOST_WATCHED);
  }

  /** Take part under a name; only tabs of the same person share a stream. */
  join(name: string): void {
    if (this.channel) return;
    this.channel = new BroadcastChannel(name);
    this.channel.onmessage = (event: MessageEvent<Message>) => this.heard(event.data);
    this.hello();
    this.expect(60 + Math.random() * 140); // an existing leader answers sooner
  }

  /** Let go at once: nobody looks at this tab. */
  leave(): void {
    if (!this.channel) return;
    if (this.leading) this.post({ kind: "leave", from: this.me, heir: this.others.keys().next().value ?? "" });
    else this.post({ kind: "gone", from: this.me });
    this.resign();
    clearTimeout(this.silence);
    this.channel.close();
    this.channel = null;
    this.leader = "";
    this.others.clear();
  }

  watch(job: WatchedJob | null): void {
    this.own = job;
    if (this.leading) this.member.wishes();
    else this.hello();
  }

  pass(text: string): void {
    this.post({ kind: "event", from: this.me, text });
    this.member.take(text);
  }

  /** Tell all tabs how the stream is. */
  tell(): void {
    if (this.leading) this.post({ kind: "state", from: this.me, state: this.member.state() });
  }

  private shown(): string {
    return JSON.stringify(this.watched);
  }

  private hello(): void {
    this.post({ kind: "hello", from: this.me, job: this.own });
  }

  private post(message: Message): void {
    this.channel?.postMessage(message);
  }

  private expect(ms: number): void {
    clearTimeout(this.silence);
    this.silence = window.setTimeout(() => this.take(), ms + Math.random() * 100);
  }

  private take(): void {
    if (this.leading || !this.channel) return;
    this.leading = new AbortController();
    this.leader = this.me;
    this.post({ kind: "lead", from: this.me });
    this.pulse = window.setInterval(() => this.post({ kind: "lead", from: this.me }), LEAD_MS);
    this.member.lead(this.leading.signal);
  }

  private resign(): void {
    clearInterval(this.pulse);
    this.leading?.abort("asked");
    this.leading = null;
  }

  private heard(message: Message): void {
    if (message.kind === "lead") {
      if (this.leading) {
        if (message.from > this.me) return this.post({ kind: "lead", from: this.me }); // two at once: the smaller name stays
        this.resign();
      }
      if (this.leader !== message.from) {
        this.leader = message.from;
        this.hello();
      }
      this.expect(SILENT_MS);
    } else if (message.kind === "leave") {
      if (message.heir === this.me) this.take();
      else if (message.from === this.leader) this.expect(HEIR_MS + Math.random() * HEIR_MS);
    } else if (message.kind === "hello" || message.kind === "gone") {
      if (!this.leading) return;
      const before = this.shown();
      if (message.kind === "hello") this.others.set(message.from, message.job);
      else this.others.delete(message.from);
      if (message.kind === "hello") {
        this.post({ kind: "lead", from: this.me });
        this.tell();
      }
      if (this.shown() !== before) this.member.wishes();
    } else if (!this.leading && message.from === this.leader) {
      this.expect(SILENT_MS);
      if (message.kind === "event") this.member.take(message.text);
      else this.member.join(message.state);
    }
  }
}
