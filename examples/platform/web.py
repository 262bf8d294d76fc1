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

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\r\n]+$")]


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    email: Line
    first_name: Line


class Newsletter(msgspec.Struct, forbid_unknown_fields=True):
    issue: Line
    subject: Line
    text: str


async def register(request: Request) -> JSONResponse:
    municipality = municipality_of(request)
    user = msgspec.json.decode(await request.body(), type=NewUser)
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
    letter = msgspec.json.decode(await request.body(), type=Newsletter)
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
    document = await request.body()
    digest = hashlib.sha256(document).hexdigest()
    UPLOADS.mkdir(exist_ok=True)
    (UPLOADS / digest).write_bytes(document)
    job = await task.enqueue(municipality=user["municipality"], user_id=user_id, digest=digest)
    return JSONResponse({"jobId": job.id}, 202)


async def show(request: Request) -> JSONResponse:
    user = database.user(request.path_params["user_id"])
    return JSONResponse(user or {"error": "no such user"}, 200 if user else 404)


def municipality_of(request: Request) -> str:
    name = str(request.path_params["municipality"])
    if name not in MUNICIPALITIES:
        raise HTTPException(404, f"no such municipality; there are {', '.join(MUNICIPALITIES)}")
    return name


async def bad_input(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 400)


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
