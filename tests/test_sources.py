"""What the code must not do at all, whatever it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import qbull
from syntax_tree import parse_source

SOURCE = Path(qbull.__file__).parent
DANGEROUS = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
READS_OTHERS_PICKLES = (
    "drain/pickles.py"  # with a list of what may be in them, for moving away from other queues
)


def trees() -> Iterator[tuple[str, ast.AST]]:
    for file in sorted(SOURCE.rglob("*.py")):
        yield str(file.relative_to(SOURCE)), parse_source(file.read_text())


def test_nothing_is_unpickled() -> None:
    found = set()
    for name, tree in trees():
        for node in ast.walk(tree):
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            found |= {(name, module) for module in modules if module.partition(".")[0] in DANGEROUS}

    assert {name for name, _ in found} <= {READS_OTHERS_PICKLES}


def test_no_text_is_run_as_code_and_no_shell_is_asked() -> None:
    found = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            shell = any(word.arg == "shell" for word in node.keywords)
            if called in ("eval", "exec", "compile", "__import__", "os.system", "os.popen") or shell:
                found.append((name, node.lineno, called))

    assert found == []


def test_secrets_are_compared_in_constant_time() -> None:
    """`==` on a digest would say by its speed how much of a guess was right."""
    found = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                if any(
                    "digest_of(" in side or "_mac(" in side or side.endswith("password") for side in sides
                ):
                    found.append((name, node.lineno, sides))

    assert found == []
