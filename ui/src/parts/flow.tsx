// A flow as a picture: its jobs from left to right, each behind those that it waits for. Many alike on one level are one box.
import { useEffect, useState } from "preact/hooks";
import { duration } from "../format";
import { to } from "../route";
import { t, type Text } from "../words";
import type { FlowStep } from "../wire";
import { Button, type State, stateIcon } from "./basics";
import { Icon, type IconName } from "./icon";

const WIDE = 190;
const HIGH = 52;
const ACROSS = 54;
const DOWN = 12;
const FOLDED = 6; // more jobs of one task on one level are one box

/** "not run": it failed because another job of the flow did, and counts under that. */
type Shown = FlowStep["state"] | "not run";

/** How many of the jobs that failed never ran. */
export function notRun(steps: FlowStep[]): number {
  return steps.filter((one) => shown(one, steps) === "not run").length;
}

function shown(one: FlowStep, steps: FlowStep[]): Shown {
  const fell = one.state === "failed" && !one.fallback && one.waitsFor.some((n) => steps[n]?.state === "failed");
  return fell ? "not run" : one.state;
}

/** The class and the icon of a state. */
function looks(state: Shown): { kind: string; icon: IconName } {
  if (state === "not run") return { kind: "state-cancelled", icon: "cancel" };
  return { kind: `state-${state}`, icon: state === "removed" ? "trash" : stateIcon(state as State) };
}

export interface Box {
  steps: FlowStep[];
  level: number;
  x: number;
  y: number;
}

/** Which boxes there are, and which lines go between them. */
export function arranged(steps: FlowStep[]): { boxes: Box[]; lines: [Box, Box][]; width: number; height: number } {
  const boxes: Box[] = [];
  const of = new Map<number, Box>();
  const levels = new Map<number, Map<string, number[]>>();
  steps.forEach((step, n) => {
    const level = levels.get(step.level) ?? new Map<string, number[]>();
    levels.set(step.level, level);
    const name = `${step.queue}/${step.task}/${step.fallback}`;
    level.set(name, [...(level.get(name) ?? []), n]);
  });
  let highest = 0;
  for (const [level, tasks] of levels) {
    const column: Box[] = [];
    for (const numbers of tasks.values()) {
      const groups = numbers.length > FOLDED ? [numbers] : numbers.map((n) => [n]);
      for (const group of groups) {
        const box = { steps: group.map((n) => steps[n] as FlowStep), level, x: level * (WIDE + ACROSS), y: 0 };
        column.push(box);
        for (const n of group) of.set(n, box);
      }
    }
    boxes.push(...column);
    highest = Math.max(highest, column.length);
  }
  const height = highest * (HIGH + DOWN) - DOWN;
  for (const level of levels.keys()) {
    const column = boxes.filter((box) => box.level === level);
    const from = (height - (column.length * (HIGH + DOWN) - DOWN)) / 2;
    column.forEach((box, n) => (box.y = from + n * (HIGH + DOWN)));
  }
  const lines = new Map<string, [Box, Box]>();
  steps.forEach((step, n) => {
    for (const before of step.waitsFor) {
      const pair: [Box, Box] = [of.get(before) as Box, of.get(n) as Box];
      lines.set(`${boxes.indexOf(pair[0])}-${boxes.indexOf(pair[1])}`, pair);
    }
  });
  return { boxes, lines: [...lines.values()], width: Math.max(...boxes.map((box) => box.x), 0) + WIDE, height };
}

const MANY = 30; // with more boxes a library finds their places
const ZOOMS = [0.35, 0.5, 0.7, 0.85, 1];
type Layout = typeof import("./flow-layout");

export function FlowGraph({ steps, here }: { steps: FlowStep[]; here: string }) {
  const found = arranged(steps);
  const many = found.boxes.length > MANY;
  const [layout, setLayout] = useState<Layout | null>(null);
  const [zoom, setZoom] = useState(many ? 0.7 : 1);
  useEffect(() => {
    if (many && !layout) import("./flow-layout").then(setLayout, () => {}); // without it: level by level
  }, [many, layout]);
  const { boxes, lines } = found;
  const size = many && layout ? layout.place(boxes, lines, WIDE, HIGH) : found;
  const step = (by: number) => setZoom(ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(zoom) + by))] ?? 1);
  const [width, height] = [Math.ceil(size.width), Math.ceil(size.height)];
  return (
    <>
      {many && (
        <div class="flow-tools">
          <span class="faint">{t("{n} jobs in {boxes} boxes", { n: steps.length, boxes: boxes.length })}</span>
          <Button small label={t("Zoom out")} disabled={zoom === ZOOMS[0]} onClick={() => step(-1)}>−</Button>
          <Button small label={t("Zoom in")} disabled={zoom === 1} onClick={() => step(1)}>+</Button>
        </div>
      )}
      <div class={`flow-scroll ${many ? "many" : ""}`} tabIndex={0} role="region" aria-label={t("Flow")}>
        <div style={{ width: `${width * zoom}px`, height: `${height * zoom}px` }}>
          <div class="flow-graph" style={{ width: `${width}px`, height: `${height}px`, transform: zoom === 1 ? undefined : `scale(${zoom})` }}>
            <svg width={width} height={height} aria-hidden="true" focusable="false">
              {lines.map(([from, to]) => {
                const [x, y, z, u] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
                const bend = Math.max(ACROSS / 2, (z - x) / 2);
                return <path key={`${x},${y},${z},${u}`} class={from.steps.every((one) => one.state === "completed") ? "passed" : ""} d={`M${x} ${y}C${x + bend} ${y} ${z - bend} ${u} ${z} ${u}`} />;
              })}
            </svg>
            {boxes.map((box) => (
              <StepBox key={`${box.x},${box.y}`} box={box} all={steps} here={here} />
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

function StepBox({ box, all, here }: { box: Box; all: FlowStep[]; here: string }) {
  const one = box.steps[0] as FlowStep;
  const many = box.steps.length;
  const state = overall(box.steps, all);
  const { kind: colour, icon } = looks(state);
  const texts = sums(box.steps, all);
  const mine = box.steps.some((step) => step.id === here);
  const place = { left: `${box.x}px`, top: `${box.y}px`, width: `${WIDE}px`, height: `${HIGH}px` };
  const inside = (
    <>
      <span class={`step-icon ${colour}`}>
        <Icon name={icon} size={14} />
      </span>
      <span class="step-words">
        <b class="cut">{many > 1 ? `${one.task} × ${many}` : one.task}</b>
        <small class="faint cut">{many > 1 ? texts : note(one, all)}</small>
      </span>
    </>
  );
  const title = `${one.queue}/${one.task}: ${texts}${one.error ? `\n${one.error}` : ""}`;
  const kind = `step ${mine ? "here" : ""} ${one.fallback ? "fallback" : ""}`;
  const href = many > 1 ? to.jobs(one.queue, state === "removed" ? undefined : state === "not run" ? "failed" : state, { task: one.task }) : to.job(one.queue, one.id);
  return one.kept || many > 1 ? (
    <a class={kind} style={place} href={href} title={title} aria-current={mine ? "true" : undefined}>
      {inside}
    </a>
  ) : (
    <span class={kind} style={place} title={title}>
      {inside}
    </span>
  );
}

/** Level by level in one line, for a list of flows. */
export function FlowLine({ steps }: { steps: FlowStep[] }) {
  const levels: Map<string, FlowStep[]>[] = [];
  for (const step of steps) {
    const level = (levels[step.level] ??= new Map());
    const name = `${step.task}/${step.fallback}`;
    level.set(name, [...(level.get(name) ?? []), step]);
  }
  return (
    <ol class="flow-line">
      {levels.map((level, n) => (
        <li key={n}>
          {n > 0 && <Icon name="right" size={11} />}
          {[...level.values()].map((some) => {
            const { kind, icon } = looks(overall(some, steps));
            return (
              <span key={some[0]?.id} class={`badge ${kind} ${some[0]?.fallback ? "fallback" : ""}`} title={`${some[0]?.queue}/${some[0]?.task}: ${sums(some, steps)}`}>
                <Icon name={icon} size={12} />
                {some[0]?.task}
                {some.length > 1 && ` × ${some.length}`}
                <span class="unseen"> {sums(some, steps)}</span>
              </span>
            );
          })}
        </li>
      ))}
    </ol>
  );
}

/** What is worst, else what goes on, else how it ended. */
function overall(some: FlowStep[], all: FlowStep[]): Shown {
  const order: Shown[] = ["failed", "active", "waiting", "delayed", "cancelled", "not run", "removed", "completed"];
  return order.find((state) => some.some((step) => shown(step, all) === state)) ?? "completed";
}

function sums(some: FlowStep[], all: FlowStep[]): string {
  const counts = new Map<Text, number>();
  for (const step of some) counts.set(word(step, all), (counts.get(word(step, all)) ?? 0) + 1);
  return [...counts].map(([text, n]) => (some.length > 1 ? `${n} ${t(text)}` : t(text))).join(", ");
}

function word(step: FlowStep, all: FlowStep[]): Text {
  return step.blocked ? "waits for others" : shown(step, all);
}

function note(step: FlowStep, all: FlowStep[]): string {
  if (step.fallback && step.blocked) return t("only if it fails");
  const state = shown(step, all);
  const parts = [t(word(step, all))];
  if (step.durationMs !== null && state !== "cancelled" && state !== "not run") parts.push(duration(step.durationMs));
  return parts.join(" · ");
}
