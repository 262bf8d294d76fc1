"""The schedulers: each run asks for what is new, and a provider that is away is asked again.

They run on a real Valkey that qbull starts for the tests. `advance` moves its clock, so nothing waits.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import readings
from schedulers import app

from qbull import testing


@pytest.fixture(autouse=True)
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A provider that has one reading, and may be away."""
    said: dict[str, Any] = {"away": False, "asked": []}

    def fetch(name: str, since: str) -> list[dict[str, Any]]:
        said["asked"].append((name, since))
        if said["away"]:
            raise ConnectionError(f"{name} is away")
        return [{"at": "2026-11-01T00:00:00Z", "value": 12.5}]

    monkeypatch.setattr(readings, "DATABASE", str(tmp_path / "readings.db"))
    monkeypatch.setattr(readings, "fetch", fetch)
    return said


def test_saving_a_reading_twice_changes_nothing() -> None:
    found = [{"at": "2026-11-01T00:00:00Z", "value": 12.5}]

    assert [readings.save("ayt", found, datetime.now(UTC)) for _ in range(2)] == [1, 0]
    assert readings.last("ayt") == "2026-11-01T00:00:00Z"


async def test_every_provider_has_its_schedule(qbull_server: testing.embedded) -> None:
    assert {schedule.name for schedule in app.declared.values()} == {
        *("serpram", "ayt", "esinfa", "sercoamb", "log-cleaning"),
    }


async def test_a_run_asks_for_what_came_after_the_last_reading(
    qbull_server: testing.embedded, provider: dict[str, Any]
) -> None:
    for _ in range(2):
        await app.schedules.run("ayt")
        await qbull_server.run_due()

    asked = [since for name, since in provider["asked"] if name == "ayt"]
    assert asked[:2] == ["1970-01-01T00:00:00Z", "2026-11-01T00:00:00Z"]


async def test_a_provider_that_is_away_is_asked_three_times(
    qbull_server: testing.embedded, provider: dict[str, Any]
) -> None:
    provider["away"] = True
    job = await app.schedules.run("serpram")

    await qbull_server.run_due()
    await qbull_server.advance(20)

    info = await job.info()
    assert info is not None and (info.state, info.attempt) == ("failed", 3)
