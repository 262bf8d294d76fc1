"""enqueue: a job from the shell, with the app's code or without it."""

from __future__ import annotations

import json

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

import qbull


@pytest.fixture
async def known(sample: SampleApp, app: qbull.App) -> SampleApp:
    """The server has heard of the app's queues and tasks, as it has after the first worker."""
    async with app.worker():
        return sample


async def test_the_id_is_printed_and_the_job_is_there(shell: Shell, known: SampleApp) -> None:
    id = shell.ok("enqueue", "email", "send", '{"to": "ana"}').strip()

    info = await known.email.job(id).info()
    assert info is not None
    assert (info.state, info.task, info.payload) == ("waiting", "send", {"to": "ana"})


async def test_key_id_delay_and_priority_are_the_jobs(shell: Shell, known: SampleApp) -> None:
    options = ("--key", "k", "--id", "mine", "--delay", "60", "--priority", "1")

    assert shell.ok("enqueue", "email", "send", '{"to": "ana"}', *options) == "mine\n"

    info = await known.email.job("mine").info()
    assert info is not None and info.due_at is not None
    assert (info.state, info.key, info.priority) == ("delayed", "k", 1)
    assert 59 < (info.due_at - info.created_at).total_seconds() < 61


async def test_a_time_a_timeout_and_an_end_are_the_jobs(shell: Shell, known: SampleApp) -> None:
    options = ("--at", "2030-01-31T12:00:00Z", "--timeout", "5", "--expires", "2030-01-31T13:00:00Z")

    id = shell.ok("enqueue", "email", "send", '{"to": "ana"}', *options).strip()
    soon = shell.ok("enqueue", "email", "send", '{"to": "ana"}', "--expires", "60").strip()

    info, other = await known.email.job(id).info(), await known.email.job(soon).info()
    assert info is not None and info.due_at is not None and info.expires_at is not None
    assert (info.due_at.year, (info.expires_at - info.due_at).total_seconds()) == (2030, 3600)
    assert other is not None and other.expires_at is not None
    assert 59 < (other.expires_at - other.created_at).total_seconds() < 61
    assert "is not a time; write it like" in shell.refused("enqueue", "email", "send", "{}", "--at", "noon")


async def test_only_one_call_of_a_window_counts(shell: Shell, known: SampleApp) -> None:
    call = ("enqueue", "email", "send", '{"to": "ana"}', "-A", "sample_app", "--unique")

    first = shell.ok(*call, "60")
    again = shell.run(*call, '{"window": 60, "mode": "first"}')

    assert again.out == first
    assert (await known.email.stats()).total == 1
    without_code = ("enqueue", "email", "send", '{"to": "ana"}', "--unique", "60")
    assert shell.run(*without_code).out == first, "without the code, the same calls are the same"


async def test_an_id_that_is_there_already_adds_nothing_and_says_so(shell: Shell, known: SampleApp) -> None:
    shell.ok("enqueue", "email", "send", '{"to": "ana"}', "--id", "mine")

    again = shell.run("enqueue", "email", "send", '{"to": "bob"}', "--id", "mine")

    assert (again.code, again.out) == (0, "mine\n")
    assert "exists already" in again.err
    assert (await known.email.stats()).total == 1


async def test_with_wait_the_result_is_printed(shell: Shell, app: qbull.App, known: SampleApp) -> None:
    shell.start("worker", "sample_app", "--queues", "email")

    out = shell.ok("enqueue", "email", "send", "-", "--wait", "20", stdin='{"to": "ana", "copies": 2}')

    assert json.loads(out) == "2 sent to ana"
    failed = shell.refused("enqueue", "email", "bounce", '{"to": "x"}', "--wait", "20")
    assert "failed: ValueError: no mailbox for x" in failed
    shell.close()


async def test_without_the_app_arguments_are_checked_as_workers_have_published_them(
    shell: Shell, known: SampleApp
) -> None:
    wrong = shell.refused("enqueue", "email", "send", '{"to": "ana", "copies": "many"}')

    assert wrong == (
        'task "send": copies: expected integer, got string; expected: send(to: string, copies: integer = …)'
    )
    assert (await known.email.stats()).total == 0


async def test_a_wait_that_is_too_short_says_so(shell: Shell, known: SampleApp) -> None:
    assert "has not finished within 0.1 s" in shell.refused(
        "enqueue", "email", "send", '{"to": "ana"}', "--wait", "0.1"
    )


async def test_with_the_app_arguments_are_checked_before_anything_is_sent(
    shell: Shell, known: SampleApp
) -> None:
    for wrong in ('{"to": 1}', "{}", '{"to": "a", "colour": "red"}'):
        assert shell.refused("enqueue", "email", "send", wrong, "-A", "sample_app").startswith(
            'task "send": '
        )

    assert (await known.email.stats()).total == 0


async def test_with_the_app_the_task_makes_its_own_key(shell: Shell, sample: SampleApp) -> None:
    id = shell.ok("enqueue", "orders", "ship", '{"customer": "ana"}', "-A", "sample_app").strip()

    info = await sample.orders.job(id).info()
    assert info is not None
    assert info.key == "ana"


async def test_without_the_app_the_key_is_made_as_the_code_makes_it(shell: Shell, known: SampleApp) -> None:
    id = shell.ok("enqueue", "orders", "ship", '{"customer": "ana"}').strip()

    same = await known.ship.enqueue(customer="ana")
    infos = [await known.orders.job(id).info(), await same.info()]
    assert infos[0] and infos[1] and infos[0].partition == infos[1].partition


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("{", "the arguments are not JSON"),
        ("to=ana", "the arguments are not JSON"),
        ("[1]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('{"self": 1}', 'can be called "self"'),
    ],
)
async def test_what_is_no_object_is_refused(
    shell: Shell, known: SampleApp, arguments: str, line: str
) -> None:
    assert line in shell.refused("enqueue", "email", "send", arguments)


async def test_an_unknown_task_is_answered_with_the_known_ones(shell: Shell, known: SampleApp) -> None:
    without = shell.refused("enqueue", "email", "sent", "{}")
    with_app = shell.refused("enqueue", "email", "sent", "{}", "-A", "sample_app")

    assert without == 'queue "email": no task "sent" is known to the server; there is: bounce, send, talk'
    assert with_app == without


async def test_what_is_too_large_is_refused(shell: Shell, known: SampleApp) -> None:
    large = json.dumps({"to": "x" * (1 << 20)})

    assert "the limit is 1,048,576" in shell.refused("enqueue", "email", "send", "-", stdin=large)


@pytest.mark.parametrize(
    "options", [("--priority", "11"), ("--delay", "-1"), ("--delay", "soon"), ("--wait", "x")]
)
async def test_wrong_options_are_one_line(shell: Shell, known: SampleApp, options: tuple[str, ...]) -> None:
    assert 'see "qbull enqueue --help"' in shell.refused("enqueue", "email", "send", "{}", *options, code=2)
