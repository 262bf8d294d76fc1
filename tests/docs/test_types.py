"""The Python of the pages type-checks under `mypy --strict`.

All blocks of a page become one module, each block a function inside the function of the block before it: so a block sees the names of
the earlier ones, and may define them in another way. Names that a page takes for granted, which its scene provides, are `Any`.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pages import PAGES, ROOT, TRANSLATED, Block, blocks_of, name_of

FOREIGN = {"docs/guides/from_celery.md", "docs/guides/from_rq.md"}
"""Their samples are code that was written for another queue, without annotations."""
ALLOWED = (
    "empty-body",
    "no-redef",
    "no-any-return",
    "import-untyped",
    "import-not-found",
    "untyped-decorator",
)
"""Bodies are left out, blocks show a thing in several ways, and names of scenes are `Any`."""


@pytest.mark.timeout(600)
def test_samples_type_check(tmp_path: Path) -> None:
    for page in PAGES:
        blocks = [block for block in blocks_of(page) if block.language == "python" and not block.not_run]
        if blocks and not page.is_relative_to(TRANSLATED) and name_of(page) not in FOREIGN:
            (tmp_path / f"{module_name(page)}.py").write_text(module(blocks))

    checked = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"),
            *(f"--disable-error-code={code}" for code in ALLOWED), str(tmp_path),
        ],
        cwd=ROOT / "src", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert len(list(tmp_path.glob("*.py"))) > 80
    assert checked.returncode == 0, checked.stdout


def module_name(page: Path) -> str:
    return re.sub(r"\W", "_", name_of(page).removesuffix(".md"))


def module(blocks: list[Block]) -> str:
    lines, used = [], set[str]()
    for depth, block in enumerate(blocks):
        text = re.sub(r"^from __future__.*\n", "", block.text, flags=re.MULTILINE)
        used |= {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        lines.append("    " * depth + f"async def line_{block.line}() -> None:")
        lines.append(textwrap.indent(text.rstrip(), "    " * (depth + 1)))
    given = sorted(name for name in used - {"qbull", "Any", "app"} if not hasattr(builtins, name))
    head = [
        "from __future__ import annotations",
        "from typing import Any",
        "import qbull",
        "app = qbull.App()",
    ]
    return "\n".join([*head, *(f"{name}: Any" for name in given), *lines]) + "\n"
