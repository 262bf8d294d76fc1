"""What is outside of the system, for your own machine: four providers of readings that can break, and a Slack.

`uvicorn outside:web --port 3010`
"""

from datetime import UTC, datetime, timedelta

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

EVERY = 10
"""Seconds between two readings of a station."""

broken: set[str] = set()
messages: list[str] = []


async def readings(request: Request) -> JSONResponse:
    provider = request.path_params["provider"]
    if provider in broken:
        return JSONResponse({"error": f"{provider} is out of order"}, 503)
    now = datetime.now(UTC)
    since = max(datetime.fromisoformat(request.query_params["since"]), now - timedelta(hours=1))
    first, end = int(since.timestamp()) // EVERY + 1, int(now.timestamp()) // EVERY + 1
    return JSONResponse([reading(number * EVERY) for number in range(first, end)])


def reading(second: int) -> dict[str, str | float]:
    at = datetime.fromtimestamp(second, UTC)
    return {"at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "value": round(12 + 8 * at.hour / 24 + at.second / 60, 2)}


async def turn(request: Request) -> JSONResponse:
    """Break a provider, or mend it."""
    provider = request.path_params["provider"]
    if request.url.path.endswith("/break"):
        broken.add(provider)
    else:
        broken.discard(provider)
    return JSONResponse({"broken": sorted(broken)})


async def slack(request: Request) -> JSONResponse:
    if request.method == "POST":
        messages.append((await request.json())["text"])
        print("Slack:", messages[-1], flush=True)
    return JSONResponse(messages)


web = Starlette(
    routes=[
        Route("/slack", slack, methods=["GET", "POST"]),
        Route("/{provider}", readings),
        Route("/{provider}/break", turn, methods=["POST"]),
        Route("/{provider}/mend", turn, methods=["POST"]),
    ]
)
