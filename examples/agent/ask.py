"""Ask the agent from a terminal: `python ask.py "Refund order 8"`.

Prints the tokens as they come. With the id of a job instead of a question, it reads that conversation again.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass

from agent import Approval, answer, app, support

import qbull


async def main(question: str | None, id: str | None) -> None:
    async with app:
        handle: qbull.Job[str] = support.job(id) if id else await answer.enqueue(question or "")
        if not id:
            print(f"job {handle.id}\n")
        asked = 0
        async for event in handle.stream():
            if "token" in event:
                print(event["token"], end="", flush=True)
            elif "tool" in event:
                print(f"\n[{event['tool']} {event['arguments']}]")
            elif "approve" in event:
                asked += 1
                if await is_waiting(handle, asked):
                    await approve(handle, event["approve"])
        print(f"\n\n{await handle.result()}")


async def is_waiting(handle: qbull.Job[str], asked: int) -> bool:
    """Whether the question with this number still waits for its answer.

    The event comes a moment before the job waits, and an answer arrives a moment before its worker records it.
    """
    while (info := await handle.info()) and info.state in ("waiting", "delayed", "active"):
        if "approval" in info.waits_for:
            return True
        recorded = [step for step in await handle.steps() if step.name == "wait_for approval"]
        if sum(step.state == "completed" for step in recorded) >= asked:
            return False
        await asyncio.sleep(0.1)
    return False


async def approve(handle: qbull.Job[str], asked: dict[str, int]) -> None:
    """Let the person at the terminal decide."""
    question = f"Refund {asked['cents'] / 100:.2f} EUR for order {asked['order']}? [y/N] "
    said = await asyncio.to_thread(input, question)
    try:
        await handle.signal("approval", Approval(said.strip().lower() == "y", getpass.getuser()))
    except qbull.Conflict:
        print("The conversation is over.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="?")
    parser.add_argument("--job", metavar="ID", help="read a conversation that exists")
    given = parser.parse_args()
    if (given.question is None) == (given.job is None):
        parser.error("give a question, or the id of a job")
    asyncio.run(main(given.question, given.job))
