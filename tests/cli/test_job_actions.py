"""cancel, retry, promote, remove, failures, redrive, clean: what can be done from a shell."""

from __future__ import annotations

import asyncio
import re

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

import qbull
from conftest import eventually


@pytest.fixture(name="bounced")
async def bounce_some(app: qbull.App, sample: SampleApp) -> list[str]:
    jobs = [await sample.bounce.enqueue(to=f"box {n}") for n in range(3)]
    async with app.worker(["email"]) as worker:
        await worker.drain()
    return [job.id for job in jobs]


async def test_a_job_is_retried_with_its_arguments_or_others(shell: Shell, bounced: list[str]) -> None:
    assert shell.ok("retry", "email", bounced[0]) == "waiting\n"
    assert shell.ok("retry", "email", bounced[1], "--payload", '{"to": "ada"}') == "waiting\n"
    assert shell.ok(
        "retry", "email", bounced[2], "--payload", "-", "-A", "sample_app:app", stdin='{"to": "x"}'
    )

    assert shell.json("job", "email", bounced[1])["payload"] == {"to": "ada"}
    assert shell.json("job", "email", bounced[2])["payload"] == {"to": "x"}
    assert len(shell.json("jobs", "email")) == 3


async def test_a_job_is_cancelled(shell: Shell, sample: SampleApp) -> None:
    job = await sample.send.enqueue(to="a")

    assert shell.ok("cancel", "email", job.id, "--reason", "not wanted") == "cancelled\n"

    shown = shell.json("job", "email", job.id)
    assert (shown["state"], shown["error"]) == ("cancelled", "not wanted")
    assert [each["id"] for each in shell.json("jobs", "email", "--state", "cancelled")] == [job.id]


async def test_a_job_is_promoted_and_removed(shell: Shell, sample: SampleApp) -> None:
    job = await sample.send.options(delay=600).enqueue(to="a")

    assert shell.ok("promote", "email", job.id) == "waiting\n"
    assert shell.ok("remove", "email", job.id) == "removed\n"

    assert await job.state() is None


async def test_a_waiting_job_is_rescheduled_and_updated(shell: Shell, sample: SampleApp) -> None:
    job = await sample.send.enqueue(to="a")

    assert shell.ok("reschedule", "email", job.id, "--delay", "2h") == "delayed\n"
    assert shell.ok("update", "email", job.id, "--payload", '{"to": "b"}') == "delayed\n"
    shown = shell.json("job", "email", job.id)
    assert (shown["state"], shown["payload"]) == ("delayed", {"to": "b"})
    assert shell.ok("reschedule", "email", job.id, "--at", "2030-01-31T12:00:00Z") == "delayed\n"
    assert shell.json("job", "email", job.id)["dueAt"].startswith("2030-01-31T12:00:00")
    assert shell.ok("reschedule", "email", job.id, "--delay", "0") == "waiting\n"

    assert "expected --delay or --at" in shell.refused("reschedule", "email", job.id, code=2)
    assert "is not a duration" in shell.refused("reschedule", "email", job.id, "--delay", "soon", code=2)
    assert "has no time zone" in shell.refused("reschedule", "email", job.id, "--at", "2030-01-31T12:00")
    unfit = shell.refused("update", "email", job.id, "--payload", "{}", "-A", "sample_app:app")
    assert unfit == "task \"send\": missing a required argument: 'to'"


async def test_what_cannot_be_done_is_said_in_one_line(
    shell: Shell, sample: SampleApp, bounced: list[str]
) -> None:
    job = await sample.send.enqueue(to="a")

    assert shell.refused("retry", "email", job.id).endswith("is waiting and will run")
    assert shell.refused("promote", "email", bounced[0]).endswith("retry() runs it again")
    assert "no job nobody" in shell.refused("remove", "email", "nobody")
    assert "the arguments are not JSON" in shell.refused("retry", "email", bounced[0], "--payload", "{")
    unfit = shell.refused("retry", "email", bounced[0], "--payload", "{}", "-A", "sample_app:app")
    assert unfit == "task \"bounce\": missing a required argument: 'to'"


@pytest.mark.usefixtures("bounced")
async def test_failures_are_grouped(shell: Shell) -> None:
    [group] = shell.json("failures", "email")
    shown = shell.ok("failures", "email")

    assert list(group) == [
        "fingerprint",
        "error",
        "count",
        "tasks",
        "firstAt",
        "lastAt",
        "lastId",
        "lastError",
        "cascade",
        "acknowledged",
    ]
    assert (group["count"], group["tasks"]) == (3, ["bounce"])
    assert re.search(rf"^ +3 +{group['fingerprint']} +bounce .*no mailbox for box <n>", shown, re.MULTILINE)
    assert "\x1b" not in shown
    assert shell.json("failures", "email", "--task", "send") == []
    assert "no matching failed jobs" in shell.run("failures", "email", "--task", "send").err


async def test_failed_jobs_are_chosen_by_task_error_and_time(shell: Shell, bounced: list[str]) -> None:
    def listed(*options: str) -> list[str]:
        return [job["id"] for job in shell.json("jobs", "email", "--state", "failed", *options)]

    assert listed("--error-contains", "BOX 1") == [bounced[1]]
    assert listed("--task", "send") == []
    assert listed("--task", "bounce", "--before", "2000-01-01T00:00:00Z") == []
    assert len(listed("--after", "2000-01-01T00:00:00Z")) == 3
    page = shell.run("jobs", "email", "--state", "failed", "--task", "bounce", "--end", "2", "--json")
    cursor = page.err.strip().removeprefix("there may be more: --cursor ")
    assert len(listed("--task", "bounce", "--cursor", cursor)) == 1
    assert "no matching failed jobs" in shell.run("jobs", "email", "--state", "failed", "--task", "send").err


async def test_failed_jobs_are_redriven_with_a_patch(shell: Shell, bounced: list[str]) -> None:
    preview = shell.ok("redrive", "email", "--patch", '{"to": "ada"}', "--preview")
    refused = shell.run("redrive", "email", "--patch", '{"too": "ada"}')
    assert shell.ok("redrive", "email", "--patch", '{"to": "ada"}', "--limit", "2") == "2\n"

    first = preview.partition(" ")[0]  # They failed at the same time.
    box = bounced.index(first)
    assert preview.startswith(f'{first} (bounce)\n  - {{"to":"box {box}"}}\n  + {{"to":"ada"}}\n')
    assert (refused.code, refused.out) == (1, "0\n")
    assert refused.err.startswith(f"qbull: 3 jobs stay dead letters; the first: job {first}")
    assert shell.json("job", "email", first)["payload"] == {"to": "ada"}
    assert shell.json("stats", "email")["failed"] == 1
    assert "--preview needs --patch" in shell.refused("redrive", "email", "--preview", code=2)
    assert "give a JSON object" in shell.refused("redrive", "email", "--patch", "[]", code=2)


@pytest.mark.usefixtures("bounced")
async def test_a_kind_of_error_is_acknowledged_and_shown_so(shell: Shell) -> None:
    kind = shell.json("failures", "email")[0]["fingerprint"]

    assert shell.ok("acknowledge", "email", kind, "--note", "ticket 4711", "--by", "ada") == "acknowledged\n"

    noted = shell.json("failures", "email")[0]["acknowledged"]
    assert (noted["by"], noted["note"], noted["returned"]) == ("ada", "ticket 4711", None)
    assert f"{kind} was acknowledged by ada" in shell.ok("failures", "email")
    assert shell.ok("acknowledge", "email", kind, "--withdraw") == "withdrawn\n"
    assert "is not acknowledged" in shell.refused("acknowledge", "email", kind, "--withdraw")
    assert "no job has failed" in shell.refused("acknowledge", "email", "0" * 12, "--note", "x")
    assert "--note or --withdraw" in shell.refused("acknowledge", "email", kind, code=2)


@pytest.mark.usefixtures("bounced")
async def test_failed_jobs_are_redriven(shell: Shell) -> None:
    assert shell.ok("redrive", "email", "--task", "send") == "0\n"
    assert shell.ok("redrive", "email", "--limit", "1", "--rate", "1000") == "1\n"
    assert shell.ok("redrive", "email", "--error-contains", "mailbox") == "2\n"

    assert shell.json("stats", "email")["waiting"] == 3


@pytest.mark.usefixtures("bounced")
async def test_finished_jobs_are_cleaned(shell: Shell) -> None:
    def clean(*options: str) -> str:
        return shell.ok("clean", "email", "--state", "failed", *options)

    assert clean("--older-than", "3600") == "0\n"
    assert clean("--older-than", "0", "--task", "send") == "0\n"
    assert clean("--older-than", "0", "--limit", "1") == "1\n"
    assert clean("--older-than", "0") == "2\n"

    assert shell.json("stats", "email")["total"] == 0


async def test_a_signal_is_sent_to_a_durable_job(shell: Shell, app: qbull.App) -> None:
    @app.queue("approvals").task(durable=True)
    async def approve() -> list[object]:
        job = qbull.current_job()
        return [await job.wait_for("approval"), await job.wait_for("approval"), await job.wait_for("go")]

    job = await approve.enqueue()
    async with app.worker(["approvals"]):
        await eventually(lambda: waits_for_signal(job))
        shown = shell.json("job", "approvals", job.id)
        assert (shown["suspended"], shown["waitsFor"]) == ("waiting", ["approval"])
        assert 'delayed, waiting for "approval"' in shell.ok("job", "approvals", job.id)
        for _ in range(2):
            assert (
                shell.ok("signal", "approvals", job.id, "approval", '{"by": "ada"}', "--signal-id", "1")
                == "sent\n"
            )
        assert shell.ok("signal", "approvals", job.id, "approval", "-", stdin="[1]") == "sent\n"
        assert shell.ok("signal", "approvals", job.id, "go") == "sent\n"
        assert await job.result(timeout=20) == [{"by": "ada"}, [1], None]

    assert "has completed" in shell.refused("signal", "approvals", job.id, "go")
    assert "the value of the signal is not JSON" in shell.refused("signal", "approvals", job.id, "go", "{")


async def test_the_values_of_a_job_are_printed(shell: Shell, app: qbull.App) -> None:
    @app.queue("chat", stream=qbull.StreamLimits(max_values=2)).task
    async def answer() -> None:
        for text in ("a", "ñ", {"b": 1}):
            await qbull.current_job().emit(text)

    job = await answer.enqueue()
    async with app.worker(["chat"]):
        await job.result(timeout=20)

    assert shell.ok("stream", "chat", job.id, "--after", "1") == '"ñ"\n{"b":1}\n'
    assert shell.ok("stream", "chat", job.id, "--after", "2", "--numbers") == '3\t{"b":1}\n'
    assert shell.ok("stream", "chat", job.id, "--after", "9") == ""
    assert "no job nobody" in shell.refused("stream", "chat", "nobody")


async def waits_for_signal(job: qbull.Job[object]) -> bool:
    return (await job.why()).reasons[0].code == "signal"


@pytest.mark.usefixtures("app")
def test_what_was_asked_wrongly_says_how(shell: Shell) -> None:
    assert "Missing option '--older-than'" in shell.refused("clean", "q", "--state", "failed", code=2)
    assert "has no time zone" in shell.refused("redrive", "q", "--after", "2030-01-01T12:00", code=2)
    assert "is not a time" in shell.refused("redrive", "q", "--after", "soon", code=2)
    assert "--cursor" in shell.refused("jobs", "q", "--start", "5", "--task", "x", code=2)


@pytest.mark.parametrize(
    "command",
    [
        "cancel",
        "retry",
        "promote",
        "reschedule",
        "update",
        "signal",
        "remove",
        "failures",
        "redrive",
        "acknowledge",
        "clean",
        "purge",
    ],
)
def test_every_command_explains_itself_with_an_example(shell: Shell, command: str) -> None:
    assert f"Example:\n    qbull {command}" in shell.ok(command, "--help")


async def test_a_durable_job_is_forked_from_a_step(shell: Shell, app: qbull.App) -> None:
    calls: list[str] = []

    async def charge(order: int) -> str:
        calls.append("charge")
        return f"payment-{order}"

    async def ship(payment: str) -> str:
        calls.append("ship")
        return f"shipped for {payment}"

    @app.queue("parcels").task(durable=True)
    async def fulfil(order: int) -> str:
        job = qbull.current_job()
        return await job.step(ship, await job.step(charge, order))

    old = await fulfil.enqueue(7)
    async with app.worker(["parcels"]):
        await old.result(timeout=20)
        calls.clear()
        printed = await asyncio.to_thread(
            shell.ok, "fork", "parcels", old.id, "--step", "ship", "--result", 'charge="cash"'
        )
        new = app.job("parcels", printed.strip())
        assert await new.result(timeout=20) == "shipped for cash"
    assert calls == ["ship"]
    assert shell.json("job", "parcels", new.id)["forkedFrom"] == old.id
    for step in ("pack", "²", "9" * 5000):
        assert f'no such step "{step[:100]}"' in shell.refused("fork", "parcels", old.id, "--step", step)
        assert "no such step" in shell.refused("fork", "parcels", old.id, "--result", f"{step}=1")
