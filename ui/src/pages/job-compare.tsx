// Two attempts of a job side by side: what differs between their errors and tracebacks.
import { useState } from "preact/hooks";
import { Button } from "../parts/basics";
import { Dialog } from "../parts/dialog";
import { Select } from "../parts/field";
import { moment } from "../format";
import { t } from "../words";
import type { Attempt } from "../wire";

type Row = [left: string | null, right: string | null];

/** The lines of two texts beside each other; a line that only one of them has is alone in its row. */
export function difference(left: string[], right: string[]): Row[] {
  const common: number[][] = Array.from({ length: left.length + 1 }, () => new Array<number>(right.length + 1).fill(0));
  for (let a = left.length - 1; a >= 0; a--) {
    for (let b = right.length - 1; b >= 0; b--) {
      common[a]![b] = left[a] === right[b] ? common[a + 1]![b + 1]! + 1 : Math.max(common[a + 1]![b]!, common[a]![b + 1]!);
    }
  }
  const rows: Row[] = [];
  let a = 0;
  let b = 0;
  while (a < left.length || b < right.length) {
    if (a < left.length && b < right.length && left[a] === right[b]) rows.push([left[a++]!, right[b++]!]);
    else if (b >= right.length || (a < left.length && common[a + 1]![b]! >= common[a]![b + 1]!)) rows.push([left[a++]!, null]);
    else rows.push([null, right[b++]!]);
  }
  return rows;
}

const textOf = (one: Attempt | undefined): string[] => (one?.stacktrace ?? one?.error ?? "").replace(/\s+$/, "").split("\n");

export function CompareAttempts({ attempts }: { attempts: Attempt[] }) {
  const [open, setOpen] = useState(false);
  const failed = attempts.filter((one) => one.error !== null);
  if (failed.length < 2) return null;
  return (
    <>
      <Button small onClick={() => setOpen(true)}>{t("Compare two attempts …")}</Button>
      {open && <Comparison failed={failed} onClose={() => setOpen(false)} />}
    </>
  );
}

function Comparison({ failed, onClose }: { failed: Attempt[]; onClose: () => void }) {
  const [left, setLeft] = useState(failed.length - 2);
  const [right, setRight] = useState(failed.length - 1);
  const rows = difference(textOf(failed[left]), textOf(failed[right]));
  const changed = rows.filter(([a, b]) => a === null || b === null).length;
  const options = failed.map((one, n): [string, string] => [String(n), `${t("Attempt {n}", { n: one.attempt })} · ${one.at ? moment(one.at) : "–"}`]);
  return (
    <Dialog title={t("Two attempts side by side")} onClose={onClose} wide>
      <div class="fields">
        <Select label={t("Left")} value={String(left)} options={options} onInput={(value) => setLeft(Number(value))} />
        <Select label={t("Right")} value={String(right)} options={options} onInput={(value) => setRight(Number(value))} />
      </div>
      <p class="faint" role="status">{changed === 0 ? t("Both are the same") : t("{n} line differs|{n} lines differ", { n: changed })}</p>
      <div class="difference mono" role="region" aria-label={t("Difference")} tabIndex={0}>
        {rows.map(([a, b], n) => (
          <div key={n} class={a === null || b === null ? "changed" : ""}>
            <span class={b === null ? "only" : ""}>{a ?? ""}</span>
            <span class={a === null ? "only" : ""}>{b ?? ""}</span>
          </div>
        ))}
      </div>
    </Dialog>
  );
}
