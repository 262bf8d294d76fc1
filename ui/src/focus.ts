// Focus moves with the view: to its heading, so that a screen reader says where one is now.
import { effect } from "@preact/signals";
import { place } from "./route";

let shown = "";
let wanted = false;

function view(): string {
  const { path, query } = place.value;
  return [path, query.get("name"), query.get("id"), query.get("kind")].join(" ");
}

effect(() => {
  const now = view();
  if (shown && now !== shown) {
    wanted = true;
    setTimeout(() => takeFocus(document.querySelector<HTMLElement>("main h1")), 50); // the heading may have stayed
  }
  shown = now;
});

/** A heading has come, or stays with another text. Somebody who is writing in the new view already keeps the focus. */
export function takeFocus(heading: HTMLElement | null): void {
  if (!wanted || !heading) return;
  wanted = false;
  const active = document.activeElement;
  if (active?.closest("main input, main textarea, main select, dialog")) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}
