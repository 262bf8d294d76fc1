"""The built site in a real browser: its own search finds the right pages, and its pictures can be looked at.

`make docs` calls `check_search()`. `python docs/site/in_browser.py DIRECTORY` takes pictures of the main pages there: light, dark and
on a phone.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Error, Page, sync_playwright
from search import HIT_COUNT, words

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PICTURES = {
    "home": "index.html",
    "tutorial": "tutorial/1_first_job.html",
    "guide": "guides/retries.html",
    "reference": "reference/python/queue.html",
}
THEMES = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
POLL_MILLISECONDS = 40
STABLE_POLLS = 2
"""The results are final when so many looks have found the same."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Requests are not printed."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address at which the site can be read."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def browser() -> Iterator[Browser | None]:
    """A Chromium: the system's, else Playwright's own; None if there is none."""
    with sync_playwright() as playwright:
        path = next((found for name in NAMES if (found := shutil.which(name))), None)
        try:
            opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        except Error:
            yield None
            return
        yield opened
        opened.close()


def check_search(site: Path = SITE) -> list[str] | None:
    """The words that do not find their page among the first hits; None without a browser."""
    with served(site) as url, browser() as chromium:
        if chromium is None:
            return None
        page = chromium.new_page()
        page.goto(url + "index.html")
        box = opened_search(page)
        found = {word: results(page, box, word, url)[:HIT_COUNT] for word in words()}
    return [
        f"{word}: {right} is not among {', '.join(found[word])}"
        for word, right in words().items()
        if right.replace(".md", ".html") not in found[word]
    ]


def requests_elsewhere(site: Path) -> list[str]:
    """The addresses outside the site that its pages fetch. Empty without a browser."""
    asked: list[str] = []
    with served(site) as url, browser() as chromium:
        if chromium is None:
            return []
        page = chromium.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for path in PICTURES.values():
            page.goto(url + path)
            page.wait_for_load_state("networkidle")
    return sorted({address for address in asked if not address.startswith((url, "data:", "blob:"))})


def check_versions(published: Path, names: list[str], path: str) -> str | None:
    """A fault of the version picker, which must offer every version and stay on the page. None without a browser."""
    with served(published) as url, browser() as chromium:
        if chromium is None:
            return None
        page = chromium.new_page()
        page.goto(f"{url}{names[0]}/{path}")
        links = page.locator(".md-version__link")
        links.first.wait_for(state="attached")
        offered = [text.strip() for text in links.all_text_contents()]
        if offered != names:
            return f"the version picker offers {', '.join(offered)} instead of {', '.join(names)}"
        page.locator(".md-version__current").hover(force=True)  # the list opens over it
        links.nth(1).click()
        page.wait_for_url(f"{url}{names[1]}/**")
        wanted = f"{url}{names[1]}/{path}"
        return None if page.url == wanted else f"the version picker leads to {page.url} instead of {wanted}"


def opened_search(page: Page) -> Any:
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox")
    box.wait_for()
    return box


def results(page: Page, box: Any, query: str, url: str) -> list[str]:
    """The pages that the site's own search finds, best first."""
    for text in ("", query):
        box.fill(text)
        seen, same = [""], 0
        while same < STABLE_POLLS or bool(seen) != bool(text):
            page.wait_for_timeout(POLL_MILLISECONDS)
            links = page.locator("ol a").evaluate_all("all => all.map(one => one.href)")
            same = same + 1 if links == seen else 0
            seen = links
    return list(dict.fromkeys(link.partition("#")[0].partition("?")[0].removeprefix(url) for link in seen))


def take_pictures(directory: Path, site: Path = SITE) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with served(site) as url, browser() as chromium:
        if chromium is None:
            sys.exit("there is no Chromium")
        for theme, options in THEMES.items():
            page = chromium.new_page(**options)  # type: ignore[arg-type]
            for name, path in PICTURES.items():
                page.goto(url + path)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=directory / f"{name}-{theme}.png")
            page.goto(url)
            box = opened_search(page)
            results(page, box, "retry backoff", url)
            page.screenshot(path=directory / f"search-{theme}.png")
            page.close()


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
