"""Orders over HTTP: 202 when an order is taken, its status when it is asked for. `uvicorn api:api --port 8000`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tasks import app, pool, process_order


class NewOrder(msgspec.Struct, forbid_unknown_fields=True):
    product: str
    quantity: int
    price: float

    def __post_init__(self) -> None:
        if not self.product or self.quantity < 1 or self.price < 0:
            raise ValueError("an order has a product, a quantity from 1, and a price that is not negative")


async def create(request: Request) -> JSONResponse:
    try:
        order = msgspec.json.decode(await request.body(), type=NewOrder)
    except msgspec.MsgspecError as error:
        return JSONResponse({"error": str(error)}, 400)
    async with pool.connection() as conn, conn.transaction():
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
    async with pool.connection() as conn:
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
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app, pool:
        yield


api = Starlette(
    routes=[
        Route("/orders", create, methods=["POST"]),
        Route("/orders/{order_id:int}", show, methods=["GET"]),
    ],
    lifespan=lifespan,
)
