"""Take the pictures of docs/images from a running server: `python tests/ui/pictures.py http://127.0.0.1:3050 PASSWORD [FOLDER]`.

Each view in light and dark at 1,440 pixels. pngquant makes them small, where it is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from browser import options
from playwright.sync_api import Page, sync_playwright

WIDTH = 1440


def main(url: str, password: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(**options())
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": WIDTH, "height": 900},
                color_scheme=scheme,
                timezone_id="Europe/Madrid",
                locale="en-GB",
            )
            page = context.new_page()
            page.on(
                "console",
                lambda said: (
                    print("console:", said.type, said.text) if said.type in ("error", "warning") else None
                ),
            )
            page.on("pageerror", lambda error: print("error:", error))
            page.goto(f"{url}/ui/")
            if scheme == "light":
                _shoot(page, folder / "login-light.png")
            page.get_by_label("Password", exact=True).fill(password)
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("heading", name="Overview").wait_for()
            page.wait_for_timeout(4500)  # so that the stream has told of something
            for name, path in views(page, url).items():
                page.goto(f"{url}/ui/{path}")
                page.locator("h1").wait_for()
                page.wait_for_timeout(1700 if name != "overview" else 5000)
                _shoot(page, folder / f"{name}-{scheme}.png")
            context.close()
        browser.close()
    packer = shutil.which("pngquant")
    for picture in sorted(folder.glob("*.png")):
        if packer is not None:
            subprocess.run(
                [packer, "--force", "--ext", ".png", "--quality", "60-95", "--strip", picture], check=False
            )
        print(f"{picture.stat().st_size / 1000:6.0f} kB  {picture.name}")


def views(page: Page, url: str) -> dict[str, str]:
    """A path for each view; those of single jobs are looked up."""

    def first(queue: str, state: str, **more: str) -> str:
        query = {"state": state, "limit": "1", **more}
        found = page.request.get(f"{url}/api/queues/{queue}/jobs", params=query).json()["jobs"]
        return f"job?queue={queue}&id={found[0]['id']}" if found else f"jobs?queue={queue}&state={state}"

    return {
        "overview": "",
        "queues": "queues",
        "queue": "queue?name=payments",
        "jobs": "jobs?queue=email&state=completed",
        "jobs-failed": "jobs?queue=email&state=failed&errorContains=smtp",
        "job-failed": first("email", "failed"),
        "job-completed": first("reports", "completed", task="monthly-statement"),
        "job-waiting": first("payments", "waiting"),
        "dead": "dead",
        "key": "keys?queue=payments&key=ACC-7731",
        "schedules": "schedules",
        "workers": "workers",
        "access": "access",
        "system": "system",
    }


def _shoot(page: Page, path: Path) -> None:
    page.screenshot(path=path, full_page=False)


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), sys.argv[2], Path(sys.argv[3] if len(sys.argv) > 3 else "docs/images"))
