"""The published site: `make site` builds the pages of `main` and of the newest releases, each in a directory of its own.

The theme's version picker reads `versions.json` next to these directories. `make docs` alone builds one version; its pages then
show no picker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "build" / "published"
MAIN = "main"
MINOR_RELEASES = 3
"""Older releases are read in the repository at their tag."""
TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
REDIRECT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>qbull</title>
<meta http-equiv="refresh" content="0; url={to}">
<p><a href="{to}">Documentation of qbull</a></p>
</html>
"""
NOT_FOUND = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>qbull: page not found</title>
<h1>Page not found</h1>
<p>This version of the documentation does not have the page. <a href="{base}{default}/index.html">Documentation of qbull</a></p>
</html>
"""


def releases_of(tags: Iterable[str]) -> dict[str, str]:
    """The newest tag of each of the newest minor releases, newest first, by the name that readers see: {"0.2": "v0.2.1"}."""
    numbers = sorted(
        (tuple(map(int, match.groups())) for tag in tags if (match := TAG.fullmatch(tag))), reverse=True
    )
    newest: dict[str, str] = {}
    for major, minor, patch in numbers:
        newest.setdefault(f"{major}.{minor}", f"v{major}.{minor}.{patch}")
    return dict(list(newest.items())[:MINOR_RELEASES])


def assemble(out: Path, sites: Mapping[str, Path], base: str) -> None:
    """Put built sites side by side: first the newest release, to which the address without a version leads."""
    shutil.rmtree(out, ignore_errors=True)
    for name, site in sites.items():
        shutil.copytree(site, out / name)
    default = next(iter(sites))
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == default else []} for name in sites
    ]
    (out / "versions.json").write_text(json.dumps(listed, indent=2) + "\n")
    (out / "index.html").write_text(REDIRECT.format(to=f"{default}/index.html"))
    (out / "404.html").write_text(NOT_FOUND.format(base=base, default=default))


def build_all(root: Path, out: Path, base: str) -> list[str]:
    """Build every version of a repository from its own tree. Returns their names."""
    tags = subprocess.run(["git", "tag"], cwd=root, check=True, capture_output=True, text=True).stdout.split()
    with tempfile.TemporaryDirectory(prefix="qbull-site-") as made:
        sites = {}
        for name, tag in releases_of(tags).items():
            tree = Path(made) / name
            clone = ["git", "clone", "--quiet", "--branch", tag, str(root), str(tree)]
            subprocess.run(
                clone, check=True, stderr=subprocess.DEVNULL
            )  # it explains what a detached HEAD is
            sites[name] = build(tree, name)
        sites[MAIN] = build(root, MAIN)
        assemble(out, sites, base)
    return list(sites)


def build(tree: Path, name: str) -> Path:
    """The site of a tree, built with the tools that it locks."""
    subprocess.run(["make", "docs"], cwd=tree, check=True, env=os.environ | {"DOCS_VERSION": name})
    return tree / "build" / "site"


def main() -> None:
    settings = yaml.safe_load((Path(__file__).parent / "mkdocs.yml").read_text())
    names = build_all(ROOT, PUBLISHED, settings["site_url"])
    print(f"{', '.join(names)} in build/published; to read them: python -m http.server -d build/published")


if __name__ == "__main__":
    main()
