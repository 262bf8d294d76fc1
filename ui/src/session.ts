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

export async function look(): Promise<void> {
  try {
    me.value = await get<Me>("api/me");
  } catch (error) {
    if (error instanceof Problem && error.status !== 401 && me.value === undefined) throw error;
    me.value = null;
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
