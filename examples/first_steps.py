"""A queue, a task, a job, a worker, all in one program.

    python examples/first_steps.py

Without QBULL_URL it starts a Valkey of its own and keeps its data in ./.qbull.
"""

import asyncio

import qbull

app = qbull.App()
email = app.queue("email")


@email.task(id="welcome:{user_id}")
async def welcome(user_id: str, name: str) -> str:
    return f"Welcome, {name}!"


async def main() -> None:
    async with app, app.worker():
        job = await welcome.enqueue(user_id="u1", name="Ada")
        print(await job.result(timeout=10))
        again = await welcome.enqueue(user_id="u1", name="Ada")
        print("enqueued again:", again.created)


if __name__ == "__main__":
    asyncio.run(main())
