"""The distributions with other projects' tests are those of the locked development dependencies."""

from __future__ import annotations

from sdists import ALL, ROOT


def test_the_pinned_versions_are_those_of_the_development_dependencies() -> None:
    locked = (ROOT / "requirements/dev.txt").read_text()

    for sdist in ALL:
        assert f"\n{sdist.name}=={sdist.version} " in f"\n{locked}"
        assert f"sha256:{sdist.sha256}" in locked
