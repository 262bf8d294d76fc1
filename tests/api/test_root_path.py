"""The root path: which paths are taken, and from whom."""

from __future__ import annotations

from typing import Any

import pytest

from qbull.api.root_path import RootPath, check_root_path
from qbull.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "taken"),
    [("/queues", "/queues"), ("/queues/", "/queues"), ("/a/b-c/", "/a/b-c"), ("", ""), ("/", "")],
)
def test_a_path_is_taken_with_and_without_a_slash_at_its_end(given: str, taken: str) -> None:
    assert check_root_path(given) == taken


@pytest.mark.parametrize(
    "path",
    [
        "queues",
        "//evil.example",
        "/a//b",
        "/a b",
        '/"><script>',
        "/../x",
        "/./x",
        "/a?b",
        "/é",
        "/" + "a" * 200,
    ],
)
def test_anything_else_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="use a path such as /queues"):
        check_root_path(path)


@pytest.mark.parametrize("path", ["/api", "/ui/x", "/metrics"])
def test_a_path_that_the_api_has_itself_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="the API has such paths itself; use another one"):
        check_root_path(path)


@pytest.mark.parametrize(
    ("sent", "client", "root"),
    [
        (["/queues"], "10.0.0.1", "/queues"),
        (["/queues"], "10.0.0.2", ""),
        (["//evil.example"], "10.0.0.1", ""),
        (["/a", "/b"], "10.0.0.1", ""),
        ([], "10.0.0.1", ""),
    ],
    ids=["a proxy", "a stranger", "no path", "two paths", "nothing"],
)
async def test_only_a_trusted_proxy_names_the_path(sent: list[str], client: str, root: str) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope.get("root_path", ""))

    headers = [(b"x-forwarded-prefix", value.encode()) for value in sent]
    scope = {"type": "http", "headers": headers, "client": (client, 1)}
    await RootPath(app, "", lambda address: address == "10.0.0.1")(scope, None, None)  # type: ignore[arg-type]

    assert seen == [root]
