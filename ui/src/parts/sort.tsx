// Columns that sort a table: a click on a head sorts, a second one turns the order around.
import { useState } from "preact/hooks";
import { t, type Text } from "../words";

export interface SortColumn<T> {
  name: string;
  title: Text;
  /** What rows are sorted by; a column without it does not sort. */
  of?: (one: T) => number | string;
  num?: boolean;
  wide?: boolean;
}

interface Order {
  by: string;
  down: boolean;
}

export function useSort<T>(columns: SortColumn<T>[], rows: T[], first: Order): { sorted: T[]; heads: preact.JSX.Element[] } {
  const [order, setOrder] = useState(first);
  const of = columns.find((one) => one.name === order.by)?.of ?? (() => 0);
  const sign = order.down ? -1 : 1;
  const sorted = [...rows].sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    return sign * (typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x - y);
  });
  const press = (one: SortColumn<T>) => setOrder({ by: one.name, down: order.by === one.name ? !order.down : (one.num ?? false) });
  const heads = columns.map((one) => (
    <th key={one.name} class={`${one.num ? "num" : ""} ${one.wide ? "wide-only" : ""}`} aria-sort={order.by === one.name ? (order.down ? "descending" : "ascending") : undefined}>
      {one.of ? <button type="button" class="sort" onClick={() => press(one)}>{t(one.title)}</button> : t(one.title)}
    </th>
  ));
  return { sorted, heads };
}
