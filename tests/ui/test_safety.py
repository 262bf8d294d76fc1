"""What users and jobs say is text, wherever the dashboard shows it: nothing of it runs."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]

CORPUS = [
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<svg/onload=window.ran=1>",
    "\"><iframe srcdoc='<script>parent.ran=1</script>'>",
    "'\"><a href=javascript:window.ran=1 autofocus onfocus=window.ran=1>x</a>",
    "javascript:window.ran=1",
    "{{constructor.constructor('window.ran=1')()}}${window.ran=1}",
    "</pre></script><style>*{display:none}</style><math><mtext></form><form><mglyph><style></math><img src onerror=window.ran=1>",
    "<b onmouseover=window.ran=1>é</b>",
]


async def test_nothing_that_a_job_or_a_person_says_runs(dashboard: DashboardServer, admin: Person) -> None:
    page = admin.page
    await page.add_init_script(
        "window.violated=[];addEventListener('securitypolicyviolation',e=>violated.push(e.violatedDirective))"
    )
    views = [
        "",
        "dead",
        "keys",
        "flows",
        "alerts",
        "workers",
        "access",
        "jobs?queue=email&state=failed",
        "jobs?queue=email&state=delayed",
    ]
    for n in range(0, len(CORPUS), 3):
        evil = " ".join(CORPUS[n : n + 3])
        payload = {"user_id": evil, "address": evil, "fail": evil}
        failed = dashboard.enqueue("email", "verify", payload, id=f"{evil[:150]} {n}")
        done = dashboard.enqueue("email", "verify", {"user_id": evil, "address": evil})
        held = dashboard.enqueue("payments", "charge", {"account": evil, "amount": 1, "refused": True})
        later = dashboard.enqueue("email", "welcome", {"user_id": evil, "address": evil}, delay=3600)
        logged = dashboard.enqueue(
            "reports", "monthly-statement", {"customer": evil, "month": evil, "seconds": 0.1}
        )
        placed = dashboard.enqueue("maintenance", "place", {"order": evil})
        stopped = dashboard.enqueue("email", "welcome", {"user_id": "u", "address": "a"}, delay=3600)
        dashboard.ask("POST", f"queues/email/jobs/{stopped}/cancel", {"reason": evil})
        for queue, id, state in (
            ("email", failed, "failed"),
            ("email", done, "completed"),
            ("payments", held, "failed"),
            ("reports", logged, "completed"),
        ):
            dashboard.until(queue, quote(id, safe=""), state)
            views.append(f"job?queue={queue}&id={quote(id, safe='')}")
        views.append(f"job?queue=orders&id={dashboard.until('maintenance', placed, 'completed')['result']}")
        views += [
            f"job?queue=email&id={later}",
            f"job?queue=email&id={stopped}",
            f"keys?queue=payments&key={quote(evil, safe='')}",
            f"jobs?queue=email&state=failed&errorContains={quote(evil, safe='')}",
        ]
        printable = "".join(letter for letter in evil if letter.isprintable())[:100]
        dashboard.ask("POST", "tokens", {"name": printable, "role": "viewer"})
    views.append(f"job?queue={quote(CORPUS[1])}&id={quote(CORPUS[0])}")

    for path in views:
        await page.goto(f"{dashboard.url}/ui/{path}")
        await expect(page.locator("main .loading")).to_have_count(0)
        found = await page.evaluate(
            "[window.ran, window.violated, document.querySelectorAll('main script, main iframe, main style, main img').length]"
        )
        assert found == [None, [], 0], path

    await admin.go("")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Find or run").fill(CORPUS[1])
    await expect(page.get_by_role("option").last).to_contain_text("onerror")
    assert await page.evaluate("window.ran") is None


async def test_the_policy_lets_nothing_else_in(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("")
    answer = dashboard.api.get(f"{dashboard.url}/ui/")
    policy = answer.headers["content-security-policy"]

    await page.evaluate("document.body.append(Object.assign(document.createElement('div'), {id: 'here'}))")
    with pytest.raises(Exception, match="TrustedHTML"):
        await page.evaluate("document.getElementById('here').innerHTML = '<img src=x>'")

    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    admin.wrong.clear()  # the browser has said that it refused that
