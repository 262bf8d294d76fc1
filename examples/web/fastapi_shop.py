"""A FastAPI application whose jobs run in the same process. See README.md."""

from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException

import qbull
from qbull.contrib.starlette import lifespan, qbull_app

app = qbull.App()
mail = app.queue("mail")


@mail.task
async def send_receipt(email: str) -> str:
    return f"receipt for {email}"


api = FastAPI(lifespan=lifespan(app, worker=True))


@api.post("/orders", status_code=202)
async def order(email: str) -> dict[str, str]:
    job = await send_receipt.enqueue(email=email)
    return {"job": job.id}


@api.get("/jobs/{id}")
async def look(id: str, jobs: Annotated[qbull.App, Depends(qbull_app)]) -> dict[str, object]:
    info = await jobs.job("mail", id).info()
    if info is None:
        raise HTTPException(404)
    return {"state": info.state, "result": info.result}
