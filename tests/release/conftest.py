"""What the tests of rolling upgrades share: the wheel of each earlier release, installed once in a test process."""

from __future__ import annotations

import pytest
from releases import RELEASES, Release, install_release


@pytest.fixture(scope="session", params=RELEASES.items(), ids=lambda release: release[0])
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """An earlier release, from its wheel."""
    return install_release(request.param[1], tmp_path_factory.mktemp("earlier"))
