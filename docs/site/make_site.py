"""The site: `make docs` calls this. Pages are gathered in build/pages, the reference is made from the code, build/site is the result.

A link that leaves the site (to a test, to a program of an example) becomes plain text: the site says what there is, the repository has it. Whatever is wrong, a link
to a page or a heading that is not there, or something that a reader's browser would fetch from elsewhere, ends it with a line that says so.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from reference import REFERENCE
from search import check, sections_of_site

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^)>\s]+)>?\)")
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+(?:src|srcset)=[\"']?(https?:)?//|<link(?![^>]+canonical)[^>]+href=[\"']?(https?:)?//|url\([\"']?(https?:)?//|@import"
)


def staged() -> dict[str, str]:
    """What of the repository is on the site, and where."""
    there = {
        "CONTRIBUTING.md": "internals/contributing.md",
        "CHANGELOG.md": "changelog.md",
        "deploy/README.md": "operate/deploy_files.md",
        "docs/decisions": "decisions/index.md",
    }
    for page in sorted((ROOT / "docs").rglob("*")):
        if (
            page.is_file()
            and page.suffix in (".md", ".png", ".svg")
            and "site" not in page.relative_to(ROOT / "docs").parts[:1]
        ):
            there[page.relative_to(ROOT).as_posix()] = page.relative_to(ROOT / "docs").as_posix()
    for page in sorted((ROOT / "examples").glob("*/README.md")):
        there[page.relative_to(ROOT).as_posix()] = f"examples/{page.parent.name}.md"
    return there


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    where = staged()
    for source, target in where.items():
        if (ROOT / source).is_file():
            put(source, target, where)
    for name, make in REFERENCE.items():
        path = PAGES / "reference" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make())
    (PAGES / "decisions" / "index.md").write_text(decisions())
    config = BUILD / "mkdocs.yml"
    config.write_text(yaml.safe_dump(configuration(), sort_keys=False, allow_unicode=True))
    done = subprocess.run(
        ["zensical", "build", "--clean", "--strict", "-f", str(config)], check=False, cwd=BUILD
    )
    if done.returncode:
        sys.exit("the site was not built; see above")
    look_for_outside()
    if wrong := check(sections_of_site(SITE / "search.json")):
        sys.exit("these words do not find their pages:\n" + "\n".join(wrong))
    many = sum(1 for _ in SITE.rglob("*.html"))
    print(f"{many} pages in build/site; to read them: python -m http.server -d build/site")


def decisions() -> str:
    """The first page of the decisions."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    lines = [f"- [{page.read_text().partition(chr(10))[0].lstrip('# ')}]({page.name})\n" for page in pages]
    return (
        "# Decisions\n\nOne page for each that is costly to reverse: what was decided, why, and what speaks against it.\n\n"
        + "".join(lines)
    )


def put(source: str, target: str, where: dict[str, str]) -> None:
    path = PAGES / target
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".md":
        shutil.copyfile(ROOT / source, path)
        return
    inside, lines = False, []
    for line in (ROOT / source).read_text().splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        lines.append(line if inside else moved(line, source, target, where))
    path.write_text("\n".join(lines) + "\n")


def moved(line: str, source: str, target: str, where: dict[str, str]) -> str:
    """A line whose links are those of the site."""

    def change(link: re.Match[str]) -> str:
        picture, text, to = link.groups()
        path, mark, heading = to.partition("#")
        if "://" in to or not path:
            return link[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if wanted not in where:
            return text if text.startswith("`") else f"{text} (`{wanted}`)"
        there = posixpath.relpath(where[wanted], posixpath.dirname(target) or ".")
        return f"{picture}[{text}]({there}{mark}{heading})"

    return LINK.sub(change, line)


def configuration() -> dict[str, Any]:
    """The site's settings; pages that its navigation does not name come last in the part that their directory is."""
    read: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "mkdocs.yml").read_text())
    named = set(re.findall(r"[\w./-]+\.md", str(read["nav"])))
    for page in sorted(path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")):
        if page not in named:
            part = next(
                (one for one in read["nav"] if next(iter(one)).lower()[:6] == page.split("/")[0][:6]),
                read["nav"][-1],
            )
            next(iter(part.values())).append(page)
    return {**read, "docs_dir": PAGES.name, "site_dir": SITE.name}


def look_for_outside() -> None:
    """A reader's browser must fetch nothing from elsewhere."""
    for path in SITE.rglob("*"):
        if path.suffix in (".html", ".css") and (found := FETCHED.search(path.read_text())):
            sys.exit(f"{path.relative_to(ROOT)}: would be fetched from elsewhere: {found[0]}")


if __name__ == "__main__":
    main()
