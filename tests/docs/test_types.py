"""The Python of the pages type-checks under `mypy --strict` and under pyright.

All blocks of a page become one module, each block a function inside the function of the block before it: so a block sees the names of
the earlier ones, and may define them in another way. Names that a page takes for granted, which its scene provides, are `Any`.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import shutil
import subprocess
import symtable
import sys
import textwrap
from pathlib import Path

import pytest
from pages import PAGES, ROOT, TRANSLATED, Block, blocks_of, name_of

from needed_tools import skip_without_tool

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


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a module for each page."""
    directory = tmp_path_factory.mktemp("samples")
    for page in PAGES:
        blocks = [block for block in blocks_of(page) if block.language == "python" and not block.not_run]
        if blocks and not page.is_relative_to(TRANSLATED) and name_of(page) not in FOREIGN:
            (directory / f"{module_name(page)}.py").write_text(module(blocks))
    assert len(list(directory.glob("*.py"))) > 80
    return directory


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("types")
def test_samples_type_check(samples: Path) -> None:
    checked = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(samples / "cache"),
            *(f"--disable-error-code={code}" for code in ALLOWED), str(samples),
        ],
        cwd=ROOT / "src", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("types")
def test_samples_type_check_under_pyright(samples: Path) -> None:
    assert pyright(samples) == []


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("types")
def test_pyright_finds_a_wrong_call_of_a_task(tmp_path: Path) -> None:
    sample = """
        import qbull
        queue = qbull.App().queue("mail")

        @queue.task
        async def send(to: str) -> None: ...

        async def main() -> None:
            await send.enqueue(7)
    """
    (tmp_path / "wrong.py").write_text(textwrap.dedent(sample))

    [found] = pyright(tmp_path)

    assert "reportArgumentType" in found


def pyright(directory: Path) -> list[str]:
    """What pyright says of all modules of a directory, in one call. It needs Node.js."""
    if shutil.which("node") is None:
        skip_without_tool("node was not found: pyright runs on it")
    settings = {
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        # Packages without annotations, such as Django, are unknown, as they are for mypy.
        "useLibraryCodeForTypes": False,
        # An alias of a type is one at the top of a module only, and the blocks are inside functions.
        "reportInvalidTypeForm": False,
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
        "reportUnusedExpression": False,
    }
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    checked = subprocess.run(
        [
            sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable,
            "--project", str(directory / "pyrightconfig.json"),
        ],
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_GLOBAL_NODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(checked.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(directory.glob("*.py")))
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']} ({one.get('rule')})"
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


def module_name(page: Path) -> str:
    return re.sub(r"\W", "_", name_of(page).removesuffix(".md"))


def module(blocks: list[Block]) -> str:
    lines = []
    for depth, block in enumerate(blocks):
        text = re.sub(r"^from __future__.*\n", "", block.text, flags=re.MULTILINE)
        lines.append("    " * depth + f"async def line_{block.line}() -> None:")
        lines.append(textwrap.indent(text.rstrip(), "    " * (depth + 1)))
    head = [
        "from __future__ import annotations",
        "from typing import Any",
        "import qbull",
        "app = qbull.App()",
    ]
    given = sorted(names_from_outside("\n".join(lines)) - {"qbull", "Any", "app", *dir(builtins)})
    return "\n".join([*head, *(f"{name}: Any" for name in given), *lines]) + "\n"


def names_from_outside(text: str) -> set[str]:
    """Names that functions of a module use, and neither they nor functions around them define."""
    found, tables = set[str](), [symtable.symtable(text, "page", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced()}
    return found - {one.get_name() for one in symtable.symtable(text, "page", "exec").get_symbols()}
