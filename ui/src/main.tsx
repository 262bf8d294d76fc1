// The page: who uses it decides between the door and the house.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import "./style/tokens.css";
import "./style/frame.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/search.css";
import "./style/plans.css";
import "./style/steps.css";
import "./style/limits.css";
import { start } from "./live";
import { Questions } from "./parts/dialog";
import { ReasonQuestion } from "./parts/reason";
import { Toasts } from "./parts/toast";
import { Frame } from "./frame";
import { Login } from "./pages/login";
import { ServerAway } from "./pages/unreachable";
import { logInByLink, look, me, unreachable } from "./session";
import { Loading } from "./parts/blank";
import { speakAsBefore } from "./words";

function Page() {
  const someone = me.value;
  useEffect(() => {
    if (someone) start();
  }, [someone]);
  return (
    <>
      {someone === undefined ? unreachable.value ? <ServerAway away={unreachable.value} /> : <Loading /> : someone === null ? <Login /> : <Frame me={someone} />}
      <Questions />
      <ReasonQuestion />
      <Toasts />
    </>
  );
}

const SOON_MS = 300;

async function begin(): Promise<void> {
  const known = logInByLink().then(look);
  await speakAsBefore();
  await Promise.race([known, new Promise((then) => setTimeout(then, SOON_MS))]); // who is here is mostly known before anything is drawn
  const place = document.getElementById("page");
  if (place) render(<Page />, place);
}

void begin();
