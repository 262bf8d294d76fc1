// Facets: how many of the jobs that match are in each queue, state, task … A click narrows the query.
import { count } from "../format";
import { Icon } from "../parts/icon";
import { hasTerm, toggled } from "../query";
import { to } from "../route";
import { t, type Text } from "../words";
import type { Facet, Facets } from "../wire";

const names: Record<string, Text> = { state: "State", queue: "Queue", task: "Task", fingerprint: "Kind of error", worker: "Worker" };
const SHOWN = 7;

export function FacetRail({ query, facets }: { query: string; facets: Facets | undefined }) {
  if (!facets) return <aside class="facets" aria-label={t("Facets")} />;
  const shown = facets.facets.filter((one) => one.values.length > 0);
  const argument = shown.filter((one) => one.field.startsWith("args."));
  return (
    <aside class="facets" aria-label={t("Facets")}>
      {shown.filter((one) => !one.field.startsWith("args.")).map((one) => (
        <Values key={one.field} query={query} facet={one} title={t(names[one.field] ?? "Argument")} open />
      ))}
      {argument.slice(0, 6).map((one) => (
        <Values key={one.field} query={query} facet={one} title={one.field} />
      ))}
      <p class="facets-note">
        {facets.scanned < facets.total
          ? t("~ counted in a sample: {n} of {all} jobs read", { n: count(facets.scanned), all: count(facets.total) })
          : t("All {n} jobs were counted", { n: count(facets.total) })}
      </p>
    </aside>
  );
}

function Values({ query, facet, title, open }: { query: string; facet: Facet; title: string; open?: boolean }) {
  const most = facet.values[0]?.count ?? 1;
  const active = facet.values.some((one) => hasTerm(query, facet.field, one.value));
  return (
    <details class="facet" open={open || active}>
      <summary><Icon name="right" size={10} />{title}</summary>
      <ul>
        {facet.values.slice(0, SHOWN).map((one) => {
          const chosen = hasTerm(query, facet.field, one.value);
          return (
            <li key={one.value}>
              <a href={to.search(toggled(query, facet.field, one.value))} aria-current={chosen ? "true" : undefined} title={facet.field === "state" ? t(one.value as Text) : (one.label ?? one.value)}>
                <span class={`cut ${facet.field === "state" ? `facet-state state-${one.value}` : ""}`}>{facet.field === "state" ? t(one.value as Text) : (one.label ?? one.value)}</span>
                <span class="facet-count">{facet.exact ? "" : "~"}{count(one.count)}</span>
                <i style={{ width: `${Math.max(2, (100 * one.count) / most)}%` }} />
              </a>
            </li>
          );
        })}
      </ul>
    </details>
  );
}
