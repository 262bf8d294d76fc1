"""Orders over HTTP: 202 when an order is taken, its status when it is asked for. `uvicorn api:api --port 8000`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tasks import app, open_pool, process_order

MAX_BODY_BYTES = 10_000
MAX_ORDER_ID = 2**63 - 1
"""The largest number that the column holds."""


class NewOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An order as a customer may place it. Whatever is outside of these bounds is refused."""

    product: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
    quantity: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    price: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


async def read_body(request: Request) -> bytes | None:
    """The body; None if it is too large. Nothing of a large one is kept in memory."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    return body


async def create(request: Request) -> JSONResponse:
    body = await read_body(request)
    if body is None:
        return JSONResponse({"error": f"an order has at most {MAX_BODY_BYTES} bytes"}, 413)
    try:
        order = msgspec.json.decode(body, type=NewOrder)
    except msgspec.ValidationError as error:
        return JSONResponse({"error": str(error)}, 422)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return JSONResponse({"error": f"not JSON: {error}"}, 400)
    async with request.app.state.pool.connection() as conn, conn.transaction():
        cursor = await conn.execute(
            "INSERT INTO orders (product, quantity, price, status) VALUES (%s, %s, %s, 'pending') RETURNING id",
            (order.product, order.quantity, order.price),
        )
        order_id = (await cursor.fetchone() or (0,))[0]
        await process_order.options(transaction=conn).enqueue(order_id=order_id)
    answer = {"message": "Order received and being processed", "orderId": order_id, "status": "pending"}
    return JSONResponse(answer, 202, headers={"Location": f"/orders/{order_id}"})


async def show(request: Request) -> JSONResponse:
    order_id = request.path_params["order_id"]
    if order_id > MAX_ORDER_ID:
        return JSONResponse({"error": f"there is no order {order_id}"}, 404)
    async with request.app.state.pool.connection() as conn:
        cursor = await conn.execute(
            "SELECT product, quantity, price::float8, status FROM orders WHERE id = %s", (order_id,)
        )
        row = await cursor.fetchone()
    if row is None:
        return JSONResponse({"error": f"there is no order {order_id}"}, 404)
    product, quantity, price, status = row
    return JSONResponse(
        {"orderId": order_id, "product": product, "quantity": quantity, "price": price, "status": status}
    )


@asynccontextmanager
async def lifespan(api: Starlette) -> AsyncIterator[None]:
    async with app, open_pool() as api.state.pool:
        yield


api = Starlette(
    routes=[
        Route("/orders", create, methods=["POST"]),
        Route("/orders/{order_id:int}", show, methods=["GET"]),
    ],
    lifespan=lifespan,
)
