"""The platform over HTTP: it answers at once, and leaves the work to the queues. `uvicorn web:web --port 3000`"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from emails import newsletter, verify, welcome
from files import UPLOADS, optimize_profile_picture, validate_cv
from queues import app
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import database

MUNICIPALITIES = ("ceres", "suardi", "tostado")

MAX_BODY_BYTES = 200_000
MAX_FILE_BYTES = 5_000_000

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
Address = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$")]


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    email: Address
    first_name: Line


class Newsletter(msgspec.Struct, forbid_unknown_fields=True):
    issue: Line
    subject: Line
    text: Annotated[str, msgspec.Meta(max_length=100_000)]


async def register(request: Request) -> JSONResponse:
    municipality = municipality_of(request)
    user = msgspec.json.decode(await read_body(request, MAX_BODY_BYTES), type=NewUser)
    user_id, token = database.add_user(municipality, user.email, user.first_name)
    await verify.enqueue(municipality, user_id, token, user.email, user.first_name)
    return JSONResponse({"userId": user_id}, 202)


async def confirm(request: Request) -> JSONResponse:
    user = database.use_token(request.path_params["token"])
    if user is None:
        return JSONResponse({"error": "this token was used or is too old"}, 404)
    await welcome.enqueue(user["municipality"], user["id"], user["email"], user["first_name"])
    return JSONResponse({"userId": user["id"], "verified": True})


async def send_newsletter(request: Request) -> JSONResponse:
    """To every verified user of a municipality. Sent twice, it goes out once: `issue` is part of each mail's id."""
    municipality = municipality_of(request)
    letter = msgspec.json.decode(await read_body(request, MAX_BODY_BYTES), type=Newsletter)
    common = {"municipality": municipality, **msgspec.structs.asdict(letter)}
    users = database.verified_users(municipality)
    jobs = await newsletter.enqueue_many(
        [{**common, "user_id": user["id"], "email": user["email"]} for user in users]
    )
    return JSONResponse({"mails": sum(job.created for job in jobs)}, 202)


async def upload(request: Request) -> JSONResponse:
    user_id, kind = request.path_params["user_id"], request.path_params["kind"]
    user = database.user(user_id)
    task: Any = {"cv": validate_cv, "picture": optimize_profile_picture}.get(kind)
    if user is None or task is None:
        return JSONResponse({"error": "no such user, or neither a cv nor a picture"}, 404)
    document = await read_body(request, MAX_FILE_BYTES)
    digest = hashlib.sha256(document).hexdigest()
    UPLOADS.mkdir(exist_ok=True)
    (UPLOADS / digest).write_bytes(document)
    job = await task.enqueue(municipality=user["municipality"], user_id=user_id, digest=digest)
    return JSONResponse({"jobId": job.id}, 202)


async def show(request: Request) -> JSONResponse:
    user = database.user(request.path_params["user_id"])
    return JSONResponse(user or {"error": "no such user"}, 200 if user else 404)


async def read_body(request: Request, most: int) -> bytes:
    """The body. One that is too large is refused as soon as that is known."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise HTTPException(413, f"at most {most:,} bytes")
    return b"".join(parts)


def municipality_of(request: Request) -> str:
    name = str(request.path_params["municipality"])
    if name not in MUNICIPALITIES:
        raise HTTPException(404, f"no such municipality; there are {', '.join(MUNICIPALITIES)}")
    return name


async def bad_input(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 422 if isinstance(error, msgspec.ValidationError) else 400)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app:
        yield


web = Starlette(
    routes=[
        Route("/{municipality}/users", register, methods=["POST"]),
        Route("/{municipality}/newsletter", send_newsletter, methods=["POST"]),
        Route("/verify/{token}", confirm),
        Route("/users/{user_id}", show),
        Route("/users/{user_id}/{kind}", upload, methods=["PUT"]),
    ],
    exception_handlers={msgspec.MsgspecError: bad_input},
    lifespan=lifespan,
)
