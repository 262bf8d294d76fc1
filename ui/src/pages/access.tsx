// Tokens and audit: who may use the API; audit.tsx has who did what.
import { useState } from "preact/hooks";
import { post, remove } from "../api";
import { useAsk } from "../ask";
import { Ago, Button, Card, Copy, Head, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { confirm, Dialog, FormDialog } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { say } from "../parts/toast";
import { admin } from "../session";
import { t } from "../words";
import type { CreatedToken, Done, Tokens } from "../wire";
import { AuditCard } from "./audit";

export function AccessView() {
  return (
    <>
      <Head title={t("Tokens and audit")}>
        {admin.value && (
          <Button
            icon="leave"
            onClick={() =>
              confirm({
                title: t("End all sessions?"),
                text: t("Everybody who is logged in to this page must log in again, you too."),
                action: t("End all sessions"),
                danger: true,
                submit: async () => say((await remove<Done>("api/sessions")).message),
              })
            }
          >
            {t("End all sessions")}
          </Button>
        )}
      </Head>
      {admin.value && <TokensCard />}
      <AuditCard />
    </>
  );
}

function TokensCard() {
  const asked = useAsk<Tokens>("api/tokens", { every: 10_000, always: true });
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<CreatedToken | null>(null);
  return (
    <Card title={t("Tokens")} aside={<Button small kind="primary" icon="plus" onClick={() => setMaking(true)}>{t("New token")}</Button>} flush>
      <Shown answer={asked} rows={3}>
        {(told) =>
          told.tokens.length === 0 ? (
            <Empty icon="access" title={t("No tokens yet")}>{t("Programs use a token to call the API; each should have its own.")}</Empty>
          ) : (
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    <th class="grow">{t("Name")}</th>
                    <th>{t("Role")}</th>
                    <th>{t("Queues")}</th>
                    <th>{t("Created by")}</th>
                    <th class="num">{t("Created")}</th>
                    <th class="num">{t("Last used")}</th>
                    <th class="num">{t("Expires")}</th>
                    <th><span class="unseen">{t("Actions")}</span></th>
                  </tr>
                </thead>
                <tbody>
                  {told.tokens.map((one) => (
                    <tr key={one.id} data-row tabIndex={-1}>
                      <td class="grow strong">{one.name}</td>
                      <td><Tag tone={one.role === "admin" ? "accent" : "plain"}>{t(one.role)}</Tag></td>
                      <td class="mono" data-label={t("Queues")}>{one.queues.length ? one.queues.join(" ") : <span class="faint">{t("all")}</span>}</td>
                      <td data-label={t("Created by")}>{one.createdBy}</td>
                      <td class="num" data-label={t("Created")}><Ago at={one.createdAt} /></td>
                      <td class="num" data-label={t("Last used")}>{one.lastUsedAt ? <Ago at={one.lastUsedAt} /> : <span class="faint">{t("never")}</span>}</td>
                      <td class="num" data-label={t("Expires")}>{one.expiresAt ? <Ago at={one.expiresAt} /> : <span class="faint">{t("never")}</span>}</td>
                      <td class="actions">
                        <Button
                          small
                          icon="retry"
                          onClick={() =>
                            confirm({
                              title: t("Rotate the token {name}?", { name: one.name }),
                              text: t("It gets a new secret. The present one is refused from now on."),
                              action: t("Rotate"),
                              submit: async () => {
                                setMade(await post<CreatedToken>(`api/tokens/${encodeURIComponent(one.id)}/rotate`));
                                await asked.again();
                              },
                            })
                          }
                        >
                          {t("Rotate")}
                        </Button>
                        <Button
                          small
                          icon="trash"
                          onClick={() =>
                            confirm({
                              title: t("Revoke the token {name}?", { name: one.name }),
                              text: t("Programs that use it are refused from now on."),
                              action: t("Revoke"),
                              danger: true,
                              submit: async () => {
                                await remove(`api/tokens/${encodeURIComponent(one.id)}`);
                                await asked.again();
                              },
                            })
                          }
                        >
                          {t("Revoke")}
                        </Button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Shown>
      {making && <NewToken onClose={() => setMaking(false)} then={async (token) => { setMade(token); await asked.again(); }} />}
      {made && <ShowToken made={made} onClose={() => setMade(null)} />}
    </Card>
  );
}

function NewToken({ onClose, then }: { onClose: () => void; then: (made: CreatedToken) => Promise<void> }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [days, setDays] = useState("");
  const [queues, setQueues] = useState("");
  return (
    <FormDialog
      title={t("New token")}
      action={t("Create")}
      onClose={onClose}
      disabled={!name}
      submit={async () => then(await post<CreatedToken>("api/tokens", { name, role, queues: queues.split(/[\s,]+/).filter(Boolean), ...(days ? { expiresIn: Number(days) * 86_400 } : {}) }))}
    >
      <Field label={t("Name")} value={name} onInput={setName} required autofocus wide placeholder="ci" hint={t("The audit shows it.")} />
      <div class="fields">
        <Select
          label={t("Role")}
          value={role}
          onInput={setRole}
          options={[
            ["viewer", t("viewer: may look")],
            ["operator", t("operator: may run, pause, retry and cancel")],
            ["admin", t("admin: may do everything")],
          ]}
        />
        <Field label={t("Days until it expires")} type="number" value={days} onInput={setDays} placeholder={t("never")} />
      </div>
      <Field label={t("Queues")} value={queues} onInput={setQueues} wide mono placeholder={t("all")} hint={t("Names or patterns such as mail-*, separated by commas.")} />
    </FormDialog>
  );
}

function ShowToken({ made, onClose }: { made: CreatedToken; onClose: () => void }) {
  return (
    <Dialog title={t("Token {name}", { name: made.details.name })} onClose={onClose}>
      <p class="dialog-text">{t("Copy it now: it is shown here and never again.")}</p>
      <div class="token-shown">
        <code>{made.token}</code>
        <Copy text={made.token} label={t("Copy the token")} />
      </div>
      <div class="dialog-foot">
        <Button kind="primary" onClick={onClose}>{t("Got it")}</Button>
      </div>
    </Dialog>
  );
}
