"""Dashboard: the built files at /ui, if the package has them. A content policy blocks all other scripts.

A file with a hash in its name never changes, so browsers cache it; the others are revalidated. Other
addresses below /ui/ are views of the dashboard.
"""

from __future__ import annotations

import html
import re
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from qbull.api.problems import ApiProblem

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "ico": "image/x-icon",
    "js": "text/javascript",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
HASHED_FILE_NAME = re.compile(r".+[.-][A-Za-z0-9_-]{8,}\.[a-z0-9]+")
BASE_TAG = b'<base href="/ui/"'
"""The placeholder in the page for its base address, replaced if the API is mounted elsewhere."""
SIGN_ON_TAG = b'<meta name="single-sign-on" content=""'
"""The same for the text of the button for single sign-on; empty if there is no provider."""

NO_DASHBOARD = (
    "this installation has no dashboard: it was built without Node.js; "
    'install qbull from a wheel, or Node.js 20.19 and run "make setup". The API is there: /api/openapi.json'
)

_PATH_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Dashboard:
    def __init__(self, folder: Traversable | None = None, sign_on_label: str | None = None) -> None:
        self._sign_on_label = html.escape(sign_on_label or "")
        self._folder = files("qbull").joinpath("ui") if folder is None else folder
        self._there = self._folder.joinpath("index.html").is_file()

    def respond(self, request: Request, path: str) -> Response:
        root = request.scope.get("root_path", "")
        if request.method not in ("GET", "HEAD") or not (path in ("", "/", "/ui") or path.startswith("/ui/")):
            raise ApiProblem(404, f'there is no "{path[:200]}" here; /api/openapi.json lists what there is')
        if not self._there:
            if "text/html" in request.headers.get("accept", ""):
                return Response(NO_DASHBOARD, 404, media_type="text/plain")
            raise ApiProblem(404, NO_DASHBOARD)
        if not path.startswith("/ui/"):
            return RedirectResponse(f"{root}/ui/", 307)
        parts = path.removeprefix("/ui/").split("/")
        file = self._file(parts)
        if file is not None:
            kind = MEDIA_TYPES.get(parts[-1].rpartition(".")[2], "application/octet-stream")
            kept = (
                "public, max-age=31536000, immutable" if HASHED_FILE_NAME.fullmatch(parts[-1]) else "no-cache"
            )
            packed = self._file([*parts[:-1], f"{parts[-1]}.gz"]) if _takes_gzip(request) else None
            return _answer((packed or file).read_bytes(), kind, kept, packed=packed is not None)
        if "." in parts[-1]:
            raise ApiProblem(404, f'the dashboard has no file "{path[:200]}"')
        index = self._folder.joinpath("index.html").read_bytes()
        index = index.replace(BASE_TAG, f'<base href="{root}/ui/"'.encode())
        label = f'<meta name="single-sign-on" content="{self._sign_on_label}"'.encode()
        return _answer(index.replace(SIGN_ON_TAG, label), "text/html", "no-cache")

    def _file(self, parts: list[str]) -> Traversable | None:
        """A file below the folder; None for anything that is not a plain name."""
        if not all(_PATH_PART.fullmatch(part) for part in parts):
            return None
        file = self._folder.joinpath(*parts)
        return file if file.is_file() and parts != ["index.html"] else None


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _answer(content: bytes, kind: str, kept: str, *, packed: bool = False) -> Response:
    headers = {
        "cache-control": kept,
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "vary": "accept-encoding",
    }
    if packed:
        headers["content-encoding"] = "gzip"
    return Response(content, headers=headers, media_type=kind)
