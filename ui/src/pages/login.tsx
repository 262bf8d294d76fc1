// The door: the password of the page, a token, or single sign-on if there is a provider.
import { useState } from "preact/hooks";
import { Problem, url } from "../api";
import { Icon, Mark } from "../parts/icon";
import { Choice, Field } from "../parts/field";
import { linkError, logIn } from "../session";
import { t } from "../words";

/** The text of the button, which the server writes into the page; empty without a provider. */
const signOnLabel = document.querySelector<HTMLMetaElement>('meta[name="single-sign-on"]')?.content ?? "";

/** Where the log-in starts. It comes back to this view. */
function signOnAddress(): string {
  const start = url("api/oidc/login");
  const root = new URL("..", document.baseURI).pathname;
  start.searchParams.set("view", `/${location.pathname.slice(root.length)}${location.search}`);
  return start.href;
}

export function Login() {
  const [how, setHow] = useState<"password" | "token">("password");
  const [text, setText] = useState("");
  const [error, setError] = useState<string | null>(linkError.peek() || null);
  const [busy, setBusy] = useState(false);
  const send = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await logIn(how === "password" ? { password: text } : { token: text });
    } catch (why) {
      setError(why instanceof Problem ? why.message : String(why));
      setBusy(false);
    }
  };
  return (
    <main class="door">
      <form class="door-card" onSubmit={(event) => void send(event)}>
        <div class="door-brand">
          <Mark size={40} />
          <h1>{t("Log in to qbull")}</h1>
        </div>
        <Choice
          label={t("How to log in")}
          value={how}
          options={[
            ["password", t("Password")],
            ["token", t("Token")],
          ]}
          onPick={setHow}
        />
        <input type="text" name="username" value="admin" autocomplete="username" hidden readOnly />
        <Field
          key={how}
          label={how === "password" ? t("Password") : t("Token")}
          type="password"
          value={text}
          onInput={setText}
          required
          autofocus
          autocomplete={how === "password" ? "current-password" : "off"}
          hint={how === "password" ? t("As in QUEUES_UI_PASS, or as printed by qbull serve.") : t('Made by "qbull token create", or by an admin here.')}
        />
        {error && (
          <p class="form-error" role="alert">
            <Icon name="failed" />
            <span>{error}</span>
          </p>
        )}
        <button type="submit" class="button primary big" disabled={busy} aria-busy={busy}>
          {t("Log in")}
        </button>
        {signOnLabel && (
          <a class="button big" href={signOnAddress()}>
            {signOnLabel === "Single sign-on" ? t("Single sign-on") : signOnLabel}
          </a>
        )}
      </form>
    </main>
  );
}
