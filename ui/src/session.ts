// Who is using the page. Nobody is shown a button that the API would refuse.
import { computed, signal } from "@preact/signals";
import { get, post, Problem, whenLost } from "./api";
import type { Done, LoggedOut, Me } from "./wire";

/** undefined while it is not known yet, null where nobody is logged in. */
export const me = signal<Me | null | undefined>(undefined);
export const admin = computed(() => me.value?.role === "admin");
/** May run, pause, retry and cancel; an admin may too. */
export const operator = computed(() => admin.value || me.value?.role === "operator");

whenLost(() => {
  me.value = null;
});

export interface Unreachable {
  message: string;
  since: number;
}

/** Why it is not known who uses the page: the server that knows does not answer. */
export const unreachable = signal<Unreachable | null>(null);
const LOOK_MS = 5000;

/** Ask who uses the page. A server that does not answer ends no session. */
export async function look(): Promise<void> {
  try {
    me.value = await get<Me>("api/me", AbortSignal.timeout(LOOK_MS));
    unreachable.value = null;
  } catch (error) {
    if (error instanceof Problem && error.status === 401) me.value = null;
    else if (me.value === null) throw error;
    else if (me.value === undefined) {
      const message = error instanceof Problem ? error.message : "";
      unreachable.value = { message, since: unreachable.peek()?.since ?? Date.now() };
    }
  }
}

export async function logIn(proof: { password: string } | { token: string } | { code: string }): Promise<void> {
  await post<Done>("api/login", proof);
  await look();
}

/** Why a login link did not work. */
export const linkError = signal("");

/** Log in with the link of `qbull dev`, if the page was opened with one. Its code leaves the address at once. */
export async function logInByLink(): Promise<void> {
  const code = /^#login=(.+)$/.exec(location.hash)?.[1];
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await post<Done>("api/login", { code });
  } catch (error) {
    linkError.value = (error as Error).message;
  }
}

export async function logOut(): Promise<void> {
  let provider: string | null = null;
  try {
    provider = (await post<LoggedOut>("api/logout")).provider;
  } finally {
    me.value = null;
  }
  if (provider) location.assign(provider); // end the session there too
}
