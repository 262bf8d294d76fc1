"""Take the pictures of docs/images from a running server: `python tests/ui/pictures.py http://127.0.0.1:3050 PASSWORD [FOLDER]`.

Each view in light and dark at 1,440 pixels, some as a phone shows them. For the documentation the server is that of
tests/ui/pictured_shop/run.py; test_pictures.py takes them of another one. Before, somebody does what people do, so that there is something in the
audit. pngquant makes the pictures small, where it is installed. An error that the page reports is an exit code of 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
from browser import options
from playwright.sync_api import Browser, Page, expect, sync_playwright

WIDTH = 1440
SCHEMES = ("light", "dark")
FIRST_RATE_MS = 15_000
"""The stream tells jobs per second from its second look on."""


def main(url: str, password: str, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    act(url, password)
    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(**options())  # type: ignore[arg-type]
        phone(browser, url, password, folder)
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": WIDTH, "height": 900},
                color_scheme=scheme,  # type: ignore[arg-type]
                timezone_id="Europe/Madrid",
                locale="en-GB",
            )
            page = context.new_page()
            page.on("console", lambda said: _heard(said.type, said.text, wrong))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(f"{url}/ui/")
            page.get_by_label("Password", exact=True).wait_for()
            _shoot(page, folder / f"login-{scheme}.png")
            enter(page, url, password)
            for name, path in views(page, url).items():
                page.goto(f"{url}/ui/{path}")
                settle(page)
                _shoot(page, folder / f"{name}-{scheme}.png")
            palette(page, url, folder / f"palette-{scheme}.png")
            context.close()
        browser.close()
    pack(folder)
    for one in wrong:
        print(f"error: {one}")
    return int(bool(wrong))


def _heard(kind: str, text: str, wrong: list[str]) -> None:
    # The log-in page asks who is there, and the answer is that nobody is.
    if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
        wrong.append(text)


def settle(page: Page) -> None:
    """Wait until a view has loaded and is live, with its charts drawn."""
    page.locator("h1").first.wait_for()
    expect(page.locator("main .loading")).to_have_count(0, timeout=30_000)
    expect(page.locator(".live").first).to_have_text("Live", timeout=30_000)
    rate = page.locator(".figures .figure", has_text="Completed now")
    if rate.count():
        expect(rate).not_to_contain_text("–", timeout=FIRST_RATE_MS)
    page.evaluate(
        "document.fonts.ready.then(() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then))))"
    )


def pack(folder: Path) -> None:
    packer = shutil.which("pngquant")
    for picture in sorted(folder.glob("*.png")):
        if packer is not None:
            subprocess.run(
                [packer, "--force", "--ext", ".png", "--quality", "60-95", "--strip", picture], check=False
            )
        print(f"{picture.stat().st_size / 1000:6.0f} kB  {picture.name}")


def act(url: str, password: str) -> None:
    """What somebody does on a working day."""
    api = httpx.Client(base_url=f"{url}/api/", auth=("admin", password), timeout=30, trust_env=False)
    known = {token["name"] for token in api.get("tokens").json()["tokens"]}
    for name, role in (("grafana", "viewer"), ("github-actions", "admin"), ("support-driver", "viewer")):
        if name not in known:
            made = api.post("tokens", json={"name": name, "role": role, "expiresIn": 90 * 86_400}).json()
            headers = {"authorization": f"Bearer {made['token']}"}
            httpx.get(f"{url}/api/queues/stats", headers=headers, trust_env=False)
            httpx.post(f"{url}/api/queues/slack/pause", headers=headers, trust_env=False)
    api.post("queues/slack/resume")
    api.put("queues/email/settings", json={"concurrency": 40, "rate": {"count": 6000, "per": 60}})
    api.post("schedules/sync-exchange-rates/run")
    api.post("queues/email/redrive", json={"errorContains": "refused", "limit": 40})
    api.post("queues/reports/clean/failed", json={"gracePeriod": 3_600_000})
    put = {"task": "slack/notify", "cron": "30 8 * * 1", "tz": "Europe/Madrid"}
    api.put(
        "schedules/weekly-greeting", json={**put, "args": {"channel": "#team", "text": "Have a good week"}}
    )
    api.post("schedules/weekly-greeting/pause")
    api.close()


def phone(browser: Browser, url: str, password: str, folder: Path) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, device_scale_factor=2, has_touch=True, locale="en-GB"
    )
    page = context.new_page()
    enter(page, url, password)
    for name, path in {"phone-overview": "", "phone-jobs": "jobs?queue=email&state=failed"}.items():
        page.goto(f"{url}/ui/{path}")
        settle(page)
        _shoot(page, folder / f"{name}.png")
    context.close()


def palette(page: Page, url: str, path: Path) -> None:
    page.goto(f"{url}/ui/")
    settle(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("pay")
    page.get_by_role("option").first.wait_for()
    _shoot(page, path)


def enter(page: Page, url: str, password: str) -> None:
    page.goto(f"{url}/ui/")
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Overview").wait_for()


def views(page: Page, url: str) -> dict[str, str]:
    """A path for each view; those of single jobs are looked up."""

    def first(queue: str, state: str, **more: str) -> str:
        query = {"state": state, "limit": "1", **more}
        found = page.request.get(f"{url}/api/queues/{queue}/jobs", params=query).json()["jobs"]
        return f"job?queue={queue}&id={found[0]['id']}" if found else f"jobs?queue={queue}&state={state}"

    def flow() -> str:
        """One that is under way, and has got somewhere."""
        found = page.request.get(f"{url}/api/flows").json()["flows"]
        best = [one for one in found if any(step["state"] == "active" for step in one["steps"])] or found
        return f"job?queue={best[0]['queue']}&id={best[0]['id']}" if best else "flows"

    def error() -> str:
        """The kind of error that fails most."""
        found = page.request.get(f"{url}/api/queues/email/failures").json()
        groups = found["groups"]
        return f"error?queue=email&kind={groups[0]['fingerprint']}" if groups else "dead"

    return {
        "overview": "",
        "queues": "queues",
        "queue": "queue?name=payments",
        "jobs": "jobs",
        "jobs-failed": "jobs?queue=email&state=failed&errorContains=421",
        "job-failed": first("email", "failed", errorContains="421"),
        "job-completed": first("reports", "completed", task="monthly-statement"),
        "job-waiting": first("payments", "waiting", key="ACC-7731"),
        "job-flow": flow(),
        "flows": "flows",
        "alerts": "alerts",
        "dead": "dead",
        "error": error(),
        "limits": "limits",
        "key": "keys?queue=payments&key=ACC-7731",
        "schedules": "schedules?name=sync-exchange-rates",
        "workers": "workers",
        "access": "access",
        "system": "system",
    }


def _shoot(page: Page, path: Path) -> None:
    page.screenshot(path=path, full_page=False, animations="disabled")


if __name__ == "__main__":
    where = Path(sys.argv[3] if len(sys.argv) > 3 else "docs/images")
    sys.exit(main(sys.argv[1].rstrip("/"), sys.argv[2], where))
