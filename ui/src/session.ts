// Who is using the page. Nobody is shown a button that the API would refuse.
import { computed, signal } from "@preact/signals";
import { get, post, Problem, whenLost } from "./api";
import type { Done, Me } from "./wire";

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

export async function logIn(proof: { password: string } | { token: string }): Promise<void> {
  await post<Done>("api/login", proof);
  await look();
}

export async function logOut(): Promise<void> {
  try {
    await post<Done>("api/logout");
  } finally {
    me.value = null;
  }
}
