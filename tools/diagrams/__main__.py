"""`python -m diagrams`: write every picture; with --check, exit with code 1 if one differs from its description."""

from __future__ import annotations

import sys
from pathlib import Path

from diagrams.drawing import draw

REPOSITORY = Path(__file__).parents[2]
DESCRIPTIONS = REPOSITORY / "docs" / "diagrams"
PICTURES = REPOSITORY / "docs" / "images"


def main(arguments: list[str]) -> int:
    stale = []
    for description in sorted(DESCRIPTIONS.glob("*.txt")):
        picture = PICTURES / f"{description.stem}.svg"
        drawn = draw(description.read_text())
        if not picture.is_file() or picture.read_text() != drawn:
            stale.append(picture.name)
            if "--check" not in arguments:
                picture.write_text(drawn)
    print(f"{'stale' if '--check' in arguments else 'written'}: {', '.join(stale) or 'none'}")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
