"""The 17 tasks of docs/guides/dashboard.md: all are possible, with exactly the clicks and keys that the page states."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_server import ADMIN, DashboardServer, person, serving
from operator_desk import COUNT, Operator, stated
from operator_tasks import TASKS, fill
from playwright.async_api import Browser

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


@pytest.fixture(scope="module", name="shop")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    """Two workers, six queues, schedules, flows, a durable job, failures of several kinds."""
    with serving(tmp_path_factory.mktemp("operator"), "operator", processes=2) as dashboard:
        fill(dashboard)
        yield dashboard


async def test_the_guide_states_the_effort_of_all_17_tasks() -> None:
    assert list(stated()) == list(TASKS)
    assert len(TASKS) == 17


@pytest.mark.parametrize("task", TASKS)
async def test_a_task_takes_the_clicks_and_keys_that_the_guide_states(
    shop: DashboardServer, browser: Browser, task: str
) -> None:
    somebody = await person(shop, browser, ADMIN, permissions=["clipboard-read", "clipboard-write"])
    await somebody.context.add_init_script(COUNT)
    operator = Operator(somebody)

    await TASKS[task](operator, browser)

    assert await operator.effort() == stated()[task]
    assert somebody.wrong == []
    await somebody.context.close()
