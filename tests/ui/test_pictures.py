"""Pictures of every view, light and dark: the program that takes those of the documentation works, and the guide shows each."""

from __future__ import annotations

import asyncio
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_server import HERE, PASSWORD, DashboardServer, serving
from operator_tasks import fill

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]

ROOT = HERE.parents[1]
IMAGES = ROOT / "docs" / "images"
GUIDE = ROOT / "docs" / "guides" / "dashboard.md"
TAKING_SECONDS = 300
SMALLEST_BYTES = 8_000
"""An empty page has fewer."""
PICTURES_OF = {"": "overview", "keys": "key", "job": "job-failed"}
"""The views whose pictures have other names."""


def of_views() -> set[str]:
    """The name of a picture for each view of the dashboard."""
    source = (ROOT / "ui" / "src" / "views.ts").read_text()
    block = source.split("export const views", 1)[1].split("};", 1)[0]
    paths = re.findall(r'^  (\w+|""): async', block, re.MULTILINE)
    return {PICTURES_OF.get(path.strip('"'), path.strip('"')) for path in paths}


def described(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", picture.name
    width, height = struct.unpack("!II", data[16:24])
    return int(width), int(height)


@pytest.fixture(scope="module", name="shop")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    with serving(tmp_path_factory.mktemp("pictured"), "pictured") as dashboard:
        fill(dashboard)
        yield dashboard


@pytest.mark.usefixtures("browser")
async def test_pictures_of_every_view_are_taken_in_light_and_dark(
    shop: DashboardServer, tmp_path: Path
) -> None:
    command = [sys.executable, str(HERE / "pictures.py"), shop.url, PASSWORD, str(tmp_path)]
    taking = await asyncio.create_subprocess_exec(
        *command, cwd=HERE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(TAKING_SECONDS):
        said, _ = await taking.communicate()

    assert taking.returncode == 0, said.decode()
    pictures = {picture.stem: picture for picture in tmp_path.glob("*.png")}
    wanted = {f"{name}-{scheme}" for name in of_views() for scheme in ("light", "dark")}
    assert wanted - set(pictures) == set()
    assert {name for name, one in pictures.items() if one.stat().st_size < SMALLEST_BYTES} == set()
    assert {described(one) for name, one in pictures.items() if "phone" not in name} == {(1440, 900)}
    assert {picture.name for picture in IMAGES.glob("*.png")} == {one.name for one in pictures.values()}


async def test_the_guide_shows_every_view_and_each_picture_has_its_pair() -> None:
    shown = set(re.findall(r"\]\(\.\./images/([\w-]+)-light\.png\)", GUIDE.read_text()))
    taken = {picture.stem for picture in IMAGES.glob("*.png") if not picture.stem.startswith("phone-")}

    assert len(of_views()) >= 15
    assert of_views() - shown == set()
    assert {name.rpartition("-")[0] for name in taken} - shown == set(), "taken, and not shown"
    assert taken == {f"{name.rpartition('-')[0]}-{scheme}" for name in taken for scheme in ("light", "dark")}
