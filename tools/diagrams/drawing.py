"""Turn a description into an SVG."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass, field

from diagrams import svg

Point = tuple[float, float]
# The average width of a letter in parts of the font's size, in a wide font: bold, and normal.
BOLD_EM, NORMAL_EM = 0.66, 0.58


class WrongDescription(ValueError):
    """A line of a description that cannot be drawn."""


@dataclass
class Shape:
    x: float
    y: float
    width: float
    height: float

    def side(self, name: str, offset: float) -> Point:
        middle, centre = self.y + self.height / 2, self.x + self.width / 2
        sides = {
            "left": (self.x, middle + offset),
            "right": (self.x + self.width, middle + offset),
            "top": (centre + offset, self.y),
            "bottom": (centre + offset, self.y + self.height),
        }
        return sides[name]


@dataclass
class Drawing:
    """A picture while its description is read. Arrows and labels are drawn over the shapes."""

    width: int = 0
    height: int = 0
    title: str = ""
    shapes: dict[str, Shape] = field(default_factory=dict)
    back: list[str] = field(default_factory=list)
    front: list[str] = field(default_factory=list)
    tight: list[str] = field(default_factory=list)
    """Labels that are probably wider than their boxes."""

    def size(self, words: list[str]) -> None:
        self.width, self.height, self.title = int(words[0]), int(words[1]), words[2]

    def group(self, words: list[str]) -> None:
        x, y, width, height = map(float, words[:4])
        self.back.append(svg.rectangle(x, y, width, height, f"group {' '.join(words[5:])}".strip(), 10))
        self.back.append(svg.text(x + 14, y + 24, words[4], "bold"))

    def box(self, words: list[str]) -> None:
        shape, label, kind = self._shape(words)
        self.back.append(svg.rectangle(shape.x, shape.y, shape.width, shape.height, f"shape {kind}".strip()))
        self.back += svg.lines(shape.x + shape.width / 2, shape.y + shape.height / 2, label)

    def cylinder(self, words: list[str]) -> None:
        shape, label, kind = self._shape(words)
        self.back.append(svg.cylinder(shape.x, shape.y, shape.width, shape.height, f"shape {kind}".strip()))
        middle = shape.y + (shape.height + svg.CYLINDER_LID_PIXELS) / 2
        self.back += svg.lines(shape.x + shape.width / 2, middle, label)

    def _shape(self, words: list[str]) -> tuple[Shape, str, str]:
        shape = Shape(*map(float, words[1:5]))
        self.shapes[words[0]] = shape
        label = words[5] if len(words) > 5 else ""
        for number, line in enumerate(label.split("|")):
            pixels = len(line) * (NORMAL_EM * svg.SMALL_PIXELS if number else BOLD_EM * svg.FONT_PIXELS)
            if pixels > shape.width:
                self.tight.append(line)
        return shape, label, " ".join(words[6:])

    def text(self, words: list[str]) -> None:
        self.front.append(svg.text(float(words[0]), float(words[1]), words[2], " ".join(words[3:])))

    def value(self, words: list[str]) -> None:
        x, y, width, height, number, most = map(float, words[:6])
        kind = " ".join(words[7:]) or "strong"
        long = max(width * number / most, 2)
        self.back.append(svg.rectangle(x, y, long, height, kind, 3))
        self.back.append(svg.text(x - 10, y + height / 2 + 5, words[6], "right"))
        self.back.append(svg.text(x + long + 8, y + height / 2 + 5, f"{number:,.0f}", "bold"))

    def line(self, words: list[str]) -> None:
        self.back.append(
            svg.path([self._point(words[0]), self._point(words[1])], " ".join(words[2:]), head=False)
        )

    def arrow(self, words: list[str]) -> None:
        start, end, label, *rest = words
        corners, at, kind = [], None, []
        while rest:
            word = rest.pop(0)
            if word == "via":
                corners.append(self._point(rest.pop(0)))
            elif word == "at":
                at = self._point(rest.pop(0))
            else:
                kind.append(word)
        points = [self._point(start), *corners, self._point(end)]
        if not corners:
            points = elbow(points[0], points[1], start)
        self.front.append(svg.path(points, " ".join(kind), head=True))
        if label:
            x, y = at or middle_of(points)
            for number, line in enumerate(label.split("|")):
                self.front.append(svg.text(x, y + 17 * number, line, "small middle halo"))

    def _point(self, word: str) -> Point:
        if "," in word:
            x, y = word.split(",")
            return float(x), float(y)
        name, _, side = word.partition(".")
        side, sign, offset = (*side.partition("+"),) if "+" in side else (*side.partition("-"),)
        return self.shapes[name].side(side, float(f"{sign}{offset}" or 0))


def elbow(start: Point, end: Point, leaves: str) -> list[Point]:
    """A straight way, or one with right angles that leaves a shape at its side."""
    if start[0] == end[0] or start[1] == end[1]:
        return [start, end]
    if ".top" in leaves or ".bottom" in leaves:
        middle = (start[1] + end[1]) / 2
        return [start, (start[0], middle), (end[0], middle), end]
    middle = (start[0] + end[0]) / 2
    return [start, (middle, start[1]), (middle, end[1]), end]


def middle_of(points: list[Point]) -> Point:
    """Where the label of a way stands: above the middle of its longest part."""
    parts = list(itertools.pairwise(points))
    (ax, ay), (bx, by) = max(
        parts, key=lambda part: abs(part[0][0] - part[1][0]) + abs(part[0][1] - part[1][1])
    )
    return (ax + bx) / 2, (ay + by) / 2 - (7 if ay == by else -4)


def read(description: str) -> Drawing:
    drawing = Drawing()
    for number, line in enumerate(description.splitlines(), 1):
        element, *words = shlex.split(line, comments=True) or [""]
        if not element:
            continue
        try:
            getattr(drawing, element)(words)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise WrongDescription(f"line {number}: {line.strip()}: {error!r}") from error
    return drawing


def draw(description: str) -> str:
    drawing = read(description)
    return svg.document(drawing.width, drawing.height, drawing.title, [*drawing.back, *drawing.front])
