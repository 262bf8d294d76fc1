"""Every link of every page leads somewhere, to a heading that is there where it names one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import PAGES, ROOT, anchors_of, links_of, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    wrong = [
        link
        for link in links_of(page)
        if "://" not in link and not link.startswith("mailto:") and not leads(page, link)
    ]

    assert wrong == []


def leads(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not heading or (target.suffix == ".md" and heading in anchors_of(target))
