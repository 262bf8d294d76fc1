"""The site: its navigation leads to pages that are there, its words are those of the code, and its tour to code that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from make_site import configuration, moved, staged
from markup import for_site
from pages import DOCS, PAGES, ROOT, links_of
from reference import REFERENCE

from qbull.cli.main import COMMANDS
from qbull.core.record import STATES
from syntax_tree import parse_source

MADE = {f"reference/{name}.md" for name in REFERENCE} | {"decisions/index.md"}


def test_the_navigation_leads_to_pages_that_are_there() -> None:
    nav = str(yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())["nav"])

    there = {*staged().values(), *MADE}
    assert [page for page in re.findall(r"[\w./-]+\.md", nav) if page not in there] == []


def test_what_the_navigation_does_not_name_comes_last_in_its_part(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    import make_site

    pages = ROOT.__class__(str(tmp_path))
    (pages / "guides").mkdir()
    (pages / "guides" / "new.md").write_text("# New\n")
    monkeypatch.setattr(make_site, "PAGES", pages)

    [guides] = [part["Guides"] for part in configuration()["nav"] if "Guides" in part]
    assert guides[-1] == "guides/new.md"


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("[orders](../../examples/orders/README.md)", "[orders](../examples/orders.md)"),
        ("[Keep](keeping.md#promised)", "[Keep](keeping.md#promised)"),
        ("[`a_test`](../../tests/guide/test_order.py)", "`a_test`"),
        ("[the app](../../deploy/shop/shop.py)", "the app (`deploy/shop/shop.py`)"),
        ("![x](../images/job-life.svg)", "![x](../images/job-life.svg)"),
        (
            "![x](../images/overview-light.png)",
            "![x](../images/overview-light.png#only-light)![x](../images/overview-dark.png#only-dark)",
        ),
        ("see [the\nglossary](../concepts/glossary.md)", "see [the\nglossary](../concepts/glossary.md)"),
        ("[there](https://example.org/a)", "[there](https://example.org/a)"),
    ],
)
def test_links_are_those_of_the_site(line: str, becomes: str) -> None:
    assert moved(line, "docs/guides/order.md", "guides/order.md", staged()) == becomes


def test_the_states_of_the_pages_are_those_of_the_code() -> None:
    life = (DOCS / "concepts" / "job_life.md").read_text()
    glossary = (DOCS / "concepts" / "glossary.md").read_text()
    picture = (DOCS / "diagrams" / "job-life.txt").read_text()

    assert set(re.findall(r"^\| `(\w+)` \|", life.partition("## The verbs")[0], re.MULTILINE)) == set(STATES)
    [line] = [line for line in glossary.splitlines() if "**state**" in line]
    assert set(re.findall(r"`(\w+)`", line)) == set(STATES)
    assert set(re.findall(r"^box (\w+)", picture, re.MULTILINE)) == set(STATES)


def test_every_page_is_within_three_clicks_of_home() -> None:
    reached = {DOCS / "index.md"}
    for _ in range(3):
        links = {
            (page.parent / link.partition("#")[0]).resolve() for page in reached for link in links_of(page)
        }
        reached |= {page for page in links if page.suffix == ".md" and page.is_file()}

    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert pages - reached == set()


@pytest.mark.parametrize(("page", "least"), [("tour.md", 50), ("changes.md", 30)])
def test_everything_that_the_pages_on_the_code_name_is_there(page: str, least: int) -> None:
    text = (DOCS / "internals" / page).read_text()
    named = re.findall(r"`((?:src|ui|tests|docs)/[\w./-]+)(?:::([\w.]+))?`", text)

    assert len(named) > least
    for path, name in named:
        assert (ROOT / path).exists(), path
        if name:
            assert name in defined(path), f"{path} has no {name}"


def defined(path: str) -> set[str]:
    """Classes, functions, methods and constants of a module."""
    found = set()
    for node in parse_source((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found |= {f"{node.name}.{one.name}" for one in inner if hasattr(one, "name")}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_every_command_that_is_named_in_a_line_is_there_with_its_options() -> None:
    """`qbull stats Q`: what stands for something else is in capitals, and arguments may be left out."""
    for page in PAGES:
        for line in re.findall(r"`qbull ([a-z-]+[^`]*)`", page.read_text()):
            name, *words = line.split()
            if name in ("…", "acl") or "…" in line:
                continue
            assert name in COMMANDS, f"{page.name}: qbull {line}"
            known = options_of(name)
            for word in words:
                if word.startswith("--") and word != "--help":
                    assert word.partition("=")[0] in known, f"{page.name}: qbull {line}"


def options_of(name: str) -> set[str]:
    import click

    from qbull.cli.main import qbull as command_line

    command = command_line.get_command(click.Context(command_line), name)
    assert command is not None
    inner = command.commands.values() if isinstance(command, click.Group) else []
    return {text for one in (command, *inner) for option in one.params for text in option.opts}


def test_pages_ask_for_buttons_cards_tabs_and_notes() -> None:
    page = (
        "<!-- buttons -->\n[A](a.md) [B](b.md)\n\n<!-- cards -->\n- one\n- two\n\n"
        "<!-- tab: Async -->\n```python\nawait f()\n```\n\n> [!NOTE]\n> Read this.\n\nEnd.\n"
    )

    assert for_site(page) == (
        "[A](a.md){ .md-button .md-button--primary } [B](b.md){ .md-button }\n\n"
        '<div class="grid cards" markdown>\n\n- one\n- two\n\n</div>\n\n'
        '=== "Async"\n\n    ```python\n    await f()\n    ```\n\n!!! note\n\n    Read this.\n\nEnd.\n'
    )


@pytest.mark.parametrize("page", sorted((DOCS / "compare").glob("[!i]*.md")), ids=lambda page: page.stem)
def test_comparisons_are_those_of_the_features(page: Path) -> None:
    rows = re.findall(r"^\| ([^|]+) \| yes \| (.*) \|$", page.read_text(), re.MULTILINE)
    features = (DOCS / "features.md").read_text().partition("## Compared with others")[2]

    assert rows or page.stem == "temporal"
    for feature, other in rows:
        [row] = re.findall(rf"^\| {re.escape(feature)} \|(.*)$", features, re.MULTILINE)
        assert other.partition(" ([note")[0] in row, feature
