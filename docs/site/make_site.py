"""The site: `make docs` calls this. Pages are gathered in build/pages, the reference is made from the code, build/site is the result.

A link that leaves the site (to a test, to a program of an example) becomes plain text: the site says what there is, the repository has it. Whatever is wrong, a link
to a page or a heading that is not there, or something that a reader's browser would fetch from elsewhere, ends it with a line that says so.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from in_browser import check_search, check_versions, requests_elsewhere
from markup import for_site
from reference import REFERENCE
from search import check, make_quiet, sections_of_site
from versions import MAIN, assemble

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"

VERSIONS = ["0.2", MAIN]
"""Names for the one site that is built here, to try the picker."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^)>\s]+)>?\)")
EDIT_URL = "https://github.com/qbull/qbull/edit/main/"
EDIT = re.compile(rf'(?s)<a href="({EDIT_URL}[^"]+)"[^>]*rel="edit".*?</a>')
WIDE = "---\nhide:\n  - navigation\n  - toc\n---\n\n"
METADATA = {"index.md": WIDE, "es/index.md": WIDE}
"""Pages that are shown otherwise: the first ones have the whole width."""
FENCED = re.compile(r"(?ms)^( *```.*?^ *```$)")
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+(?:src|srcset)=[\"']?(https?:)?//|<link(?![^>]+canonical)[^>]+href=[\"']?(https?:)?//|url\([\"']?(https?:)?//|@import\s+(?:url|[\"'])"
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
    there["docs/examples.md"] = "examples/index.md"
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
    shutil.copytree(Path(__file__).parent / "assets", PAGES / "assets")
    config = BUILD / "mkdocs.yml"
    settings = configuration()
    config.write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    done = subprocess.run(
        ["zensical", "build", "--clean", "--strict", "-f", str(config)], check=False, cwd=BUILD
    )
    if done.returncode:
        sys.exit("the site was not built; see above")
    look_for_outside()
    remove_star_counts()
    lead_to_sources(where)
    make_quiet(SITE / "search.json")
    list_home(SITE / "sitemap.xml", settings["site_url"])
    wrong = check_search(SITE)
    if wrong is None:
        print("there is no Chromium: the search is checked by a model of it")
        wrong = check(sections_of_site(SITE / "search.json"))
    if wrong:
        sys.exit("these words do not find their pages:\n" + "\n".join(wrong))
    if elsewhere := requests_elsewhere(SITE):
        sys.exit("the pages fetch from elsewhere:\n" + "\n".join(elsewhere))
    try_picker()
    many = sum(1 for _ in SITE.rglob("*.html"))
    print(f"{many} pages in build/site; to read them: python -m http.server -d build/site")


def list_home(sitemap: Path, address: str) -> None:
    """The version picker stays on a page only if the sitemap has the address in which all others begin."""
    opening = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    text = sitemap.read_text()
    if opening not in text:
        sys.exit(f"{sitemap.name} does not begin as expected: the version picker would leave the page")
    sitemap.write_text(
        text.replace(opening, f"{opening}\n      <url>\n        <loc>{address}</loc>\n      </url>")
    )


def try_picker() -> None:
    """Publish the site twice, as two versions, and switch from one to the other."""
    with tempfile.TemporaryDirectory(prefix="qbull-versions-") as made:
        assemble(Path(made), dict.fromkeys(VERSIONS, SITE), "/")
        if problem := check_versions(Path(made), VERSIONS, "guides/retries.html"):
            sys.exit(problem)


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
    parts = FENCED.split((ROOT / source).read_text())
    text = "".join(
        part if part.lstrip().startswith("```") else moved(part, source, target, where) for part in parts
    )
    path.write_text(METADATA.get(target, "") + for_site(text))


def moved(text: str, source: str, target: str, where: dict[str, str]) -> str:
    """A text whose links are those of the site. A link may be broken into lines."""

    def change(link: re.Match[str]) -> str:
        picture, label, to = link.groups()
        path, mark, heading = to.partition("#")
        if "://" in to or not path:
            return link[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if wanted not in where:
            return label if label.startswith("`") else f"{label} (`{wanted}`)"
        there = posixpath.relpath(where[wanted], posixpath.dirname(target) or ".")
        dark = wanted.replace("-light.", "-dark.")
        if picture and dark != wanted and dark in where:
            other = there.replace("-light.", "-dark.")
            return f"![{label}]({there}#only-light)![{label}]({other}#only-dark)"
        return f"{picture}[{label}]({there}{mark}{heading})"

    return LINK.sub(change, text)


def configuration() -> dict[str, Any]:
    """The site's settings; pages that its navigation does not name come last in the part that their directory is."""
    read: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "mkdocs.yml").read_text())
    named = set(re.findall(r"[\w./-]+\.md", str(read["nav"])))
    for page in sorted(path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")):
        if page not in named:
            parts = list(parts_of(read["nav"]))
            *_, directory = page.split("/")[:-1] or [""]
            directory = directory[:6]
            next((one for title, one in parts if title.lower()[:6] == directory), parts[-1][1]).append(page)
    version = os.environ.get("DOCS_VERSION")
    address = f"{read['site_url']}{version}/" if version else read["site_url"]
    return {**read, "docs_dir": PAGES.name, "site_dir": SITE.name, "site_url": address}


def parts_of(nav: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The parts of a navigation with their titles, and the parts in them."""
    for one in nav:
        if isinstance(one, dict):
            [(title, below)] = one.items()
            if isinstance(below, list):
                yield title, below
                yield from parts_of(below)


def lead_to_sources(where: dict[str, str]) -> None:
    """Let the edit link of a page lead to its source in the repository. Generated pages have none."""
    sources = {target: source for source, target in where.items()}
    for path in SITE.rglob("*.html"):
        page = path.relative_to(SITE).with_suffix(".md").as_posix()
        source = sources.get(page, "")
        text = path.read_text()
        link = EDIT.search(text)
        if link and (ROOT / source).is_file():
            path.write_text(text.replace(link[1], f"{EDIT_URL}{source}"))
        elif link:
            path.write_text(text.replace(link[0], ""))


def remove_star_counts() -> None:
    """Keep the pages from asking GitHub for the stars of the repository."""
    for path in SITE.rglob("*.html"):
        path.write_text(path.read_text().replace(' data-md-component="source"', ""))


def look_for_outside() -> None:
    """A reader's browser must fetch nothing from elsewhere."""
    for path in SITE.rglob("*"):
        if path.suffix in (".html", ".css") and (found := FETCHED.search(path.read_text())):
            sys.exit(f"{path.relative_to(ROOT)}: would be fetched from elsewhere: {found[0]}")


if __name__ == "__main__":
    main()
