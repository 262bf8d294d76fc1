"""The look of a diagram: colours for both themes, and the elements as SVG."""

from __future__ import annotations

from html import escape

FONT_PIXELS = 15
SMALL_PIXELS = 13
LINE_PIXELS = 19
CYLINDER_LID_PIXELS = 9

STYLE = """
text { font: 15px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2937; }
.small { font-size: 13px; fill: #4b5563; } .bold { font-weight: 600; } .title { font-size: 17px; font-weight: 600; }
.muted { fill: #6b7280; } .middle { text-anchor: middle; } .right { text-anchor: end; }
.code { font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; font-size: 13px; }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 5px; stroke-linejoin: round; }
.paper { fill: #ffffff; stroke: #e5e7eb; }
.shape { fill: #ffffff; stroke: #9ca3af; stroke-width: 1.5; }
.group { fill: #f8fafc; stroke: #cbd5e1; stroke-width: 1.2; }
.blue { fill: #eef2ff; stroke: #4f46e5; } .green { fill: #ecfdf5; stroke: #059669; }
.red { fill: #fef2f2; stroke: #dc2626; } .amber { fill: #fffbeb; stroke: #d97706; }
.ghost { fill: none; stroke-dasharray: 5 4; } .strong { fill: #4f46e5; stroke: none; } .weak { fill: #cbd5e1; stroke: none; }
.way { fill: none; stroke: #6b7280; stroke-width: 1.6; } .dashed { stroke-dasharray: 5 4; }
.way.bad { stroke: #dc2626; } .way.good { stroke: #059669; } .way.thin { stroke: #cbd5e1; stroke-width: 1; }
.head { fill: #6b7280; } text.bad { fill: #b91c1c; } text.good { fill: #047857; }
@media (prefers-color-scheme: dark) {
  text { fill: #f3f4f6; } .small { fill: #d1d5db; } .muted { fill: #9ca3af; }
  .halo { stroke: #111827; } .paper { fill: #111827; stroke: #374151; } .shape { fill: #1f2937; stroke: #6b7280; }
  .group { fill: #172033; stroke: #374151; }
  .blue { fill: #312e81; stroke: #a5b4fc; } .green { fill: #064e3b; stroke: #34d399; }
  .red { fill: #5f1414; stroke: #f87171; } .amber { fill: #5c3508; stroke: #fbbf24; }
  .ghost { fill: none; } .strong { fill: #818cf8; } .weak { fill: #4b5563; }
  .way { stroke: #9ca3af; } .way.bad { stroke: #f87171; } .way.good { stroke: #34d399; } .way.thin { stroke: #4b5563; }
  .head { fill: #9ca3af; } text.bad { fill: #fca5a5; } text.good { fill: #6ee7b7; }
}
"""
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path class="head" d="M0 0L10 5L0 10z"/></marker></defs>'
)


def document(width: int, height: int, title: str, body: list[str]) -> str:
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" role="img" aria-label="{escape(title)}">'
            ),
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            ARROW,
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
            *body,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words, quote=False)}</text>'


def rectangle(x: float, y: float, width: float, height: float, kind: str, radius: int = 8) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'


def cylinder(x: float, y: float, width: float, height: float, kind: str) -> str:
    lid = CYLINDER_LID_PIXELS
    curve = f"{width / 2:g} {lid} 0 0 "
    return (
        f'<path class="{kind}" d="M{x:g} {y + lid:g}a{curve}1 {width:g} 0v{height - 2 * lid:g}a{curve}1 {-width:g} 0z"/>'
        f'<path class="{kind}" d="M{x:g} {y + lid:g}a{curve}0 {width:g} 0" style="fill:none"/>'
    )


def path(points: list[tuple[float, float]], kind: str, *, head: bool) -> str:
    steps = "L".join(f"{x:g} {y:g}" for x, y in points)
    marker = ' marker-end="url(#arrow)"' if head else ""
    return f'<path class="way {kind}" d="M{steps}"{marker}/>'


def lines(x: float, middle: float, label: str, kind: str = "") -> list[str]:
    """The lines of a label, centred around a point: the first in normal size, the others small."""
    words = label.split("|")
    first = middle - LINE_PIXELS * (len(words) - 1) / 2 + FONT_PIXELS / 3
    return [
        text(x, first + LINE_PIXELS * number, line, f"middle {'small' if number else 'bold'} {kind}".strip())
        for number, line in enumerate(words)
    ]
