// Places for the boxes of a large flow, with as few crossing lines as possible. Loaded when a flow is large.
import { graphlib, layout } from "@dagrejs/dagre";
import type { Box } from "./flow";

/** Moves the boxes; gives the size of the whole. */
export function place(boxes: Box[], lines: [Box, Box][], wide: number, high: number): { width: number; height: number } {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 10, ranksep: 54, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  boxes.forEach((_, n) => graph.setNode(String(n), { width: wide, height: high }));
  for (const [from, to] of lines) graph.setEdge(String(boxes.indexOf(from)), String(boxes.indexOf(to)));
  layout(graph);
  boxes.forEach((box, n) => {
    const { x, y } = graph.node(String(n)) as { x: number; y: number };
    box.x = x - wide / 2;
    box.y = y - high / 2;
  });
  return { width: Math.max(...boxes.map((box) => box.x)) + wide, height: Math.max(...boxes.map((box) => box.y)) + high };
}
