"""The published site has a directory for main and for each of the newest releases, and a list of them for the picker."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from versions import build_all, releases_of

MAKEFILE = """docs:
	@mkdir -p build/site
	@echo "{text} $$DOCS_VERSION" > build/site/index.html
"""


def test_the_newest_patch_of_the_three_newest_minor_releases_is_published() -> None:
    tags = ["v0.2.0", "v0.10.0", "v0.9.1", "v0.9.0", "v0.10.1", "v1.0.0rc1", "nightly", "v0.1.0"]

    assert list(releases_of(tags).items()) == [("0.10", "v0.10.1"), ("0.9", "v0.9.1"), ("0.2", "v0.2.0")]


def test_every_version_is_built_from_its_own_tree(tmp_path: Path) -> None:
    root, out = tmp_path / "repository", tmp_path / "published"
    root.mkdir()
    git(root, "init", "--quiet")
    for tag, text in {"v0.1.0": "first", "v0.1.1": "mended", "v0.2.0": "second"}.items():
        commit(root, text)
        git(root, "tag", tag)
    commit(root, "newest")

    build_all(root, out, "https://example.org/qbull/")

    assert {path.parent.name: path.read_text() for path in out.glob("*/index.html")} == {
        "0.1": "mended 0.1\n",
        "0.2": "second 0.2\n",
        "main": "newest main\n",
    }
    listed = json.loads((out / "versions.json").read_text())
    assert [version["version"] for version in listed] == ["0.2", "0.1", "main"]
    assert listed[0]["aliases"] == ["latest"]
    assert "url=0.2/index.html" in (out / "index.html").read_text()
    assert 'href="https://example.org/qbull/0.2/index.html"' in (out / "404.html").read_text()


def test_before_the_first_release_the_address_without_a_version_leads_to_main(tmp_path: Path) -> None:
    root, out = tmp_path / "repository", tmp_path / "published"
    root.mkdir()
    git(root, "init", "--quiet")
    commit(root, "newest")

    build_all(root, out, "/")

    assert "url=main/index.html" in (out / "index.html").read_text()


def commit(root: Path, text: str) -> None:
    (root / "Makefile").write_text(MAKEFILE.format(text=text))
    git(root, "add", "Makefile")
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "-m", text)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.DEVNULL)
