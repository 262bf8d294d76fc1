"""One worker process of `qbull worker`. It runs the jobs; the supervisor starts it.

This is a module to run and not a command of `qbull`: without the command line, the process is smaller.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import Any

import msgspec

from qbull.app import App
from qbull.cli.app_loading import load_app
from qbull.cli.error_line import error_line
from qbull.cli.worker_options import WorkerOptions, min_idle_of
from qbull.errors import LifespanError, QbullError
from qbull.observe.log import set_up_logging
from qbull.worker.actor import first_of, stop_actors
from qbull.worker.assignment import with_offer
from qbull.worker.debugging import refuse_breakpoints
from qbull.worker.job_log import follow_jobs_in_log
from qbull.worker.process.channel import Leaving, open_channel
from qbull.worker.process.child import ProcessHandles
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from qbull.worker.process.memory import freeze_loaded_objects, trim_memory
from qbull.worker.process.recycle import Recycler
from qbull.worker.process.restart_pause import START_FAILED_EXIT_CODE
from qbull.worker.supervisor_link import SupervisorLink
from qbull.worker.worker import Supervision, Worker

log = logging.getLogger("qbull.worker")


def main() -> None:
    """Run one worker process under a supervisor, with the arguments of `worker_process_argv`."""
    told, id, *descriptors = sys.argv[1:]
    try:
        _run(msgspec.json.decode(told, type=WorkerOptions), id, ProcessHandles(*map(int, descriptors)))
    except QbullError as error:
        print(error_line(str(error)), file=sys.stderr)
        sys.exit(1)


def _run(options: WorkerOptions, id: str, handles: ProcessHandles) -> None:
    """Import the app, wait for a role from the supervisor, and run jobs."""
    # Ctrl-C reaches the whole process group. The supervisor decides and passes the signal on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    app = load_app(options.app)
    set_up_logging(app.environment.log_format, app.environment.log_level)
    follow_jobs_in_log(job_log_on=options.job_log)
    refuse_breakpoints()
    try:
        asyncio.run(_serve(app, options, id, handles))
    except LifespanError as error:
        log.error("%s", error)
        sys.exit(START_FAILED_EXIT_CODE)


async def _serve(app: App, options: WorkerOptions, id: str, handles: ProcessHandles) -> None:
    """Wait for the role of this process, then run jobs until it is told to stop or to leave."""
    link = SupervisorLink(open_channel(handles.channel))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Further signals change nothing: a service manager may signal the whole group, and the supervisor passes
    # its own signal on.
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    assignments = with_offer(app._assignments(options.queues, options.concurrency), options.offer)
    _follow_parent(handles.life, loop, stop, min_idle_of(app, assignments) / 2)
    beside: list[asyncio.Task[Any]] = [asyncio.create_task(trim_memory()), asyncio.create_task(link.run())]
    await first_of(link.role_given.wait(), stop.wait())
    abandoned = 0
    if link.role is not None:
        slots = sum(board_slots_for(assignment.settings.concurrency) for assignment in assignments)
        worker = Worker(
            app._make_store,
            assignments,
            sharing=link.role.sharing,
            min_idle=app.environment.min_idle,
            supervision=Supervision(id, CrashBoard(handles.board, slots), options.loop_warning, link),
        )
        await _work(worker, options, link, stop)
        abandoned = worker.abandoned
    await stop_actors(beside)
    await app.close()
    if abandoned:
        # Python would wait for the threads of plain functions; the supervisor reclaims their jobs when the
        # process is gone.
        logging.shutdown()
        os._exit(0)


async def _work(worker: Worker, options: WorkerOptions, link: SupervisorLink, stop: asyncio.Event) -> None:
    """Run jobs until `stop` is set or a successor runs jobs."""
    starting, stopping = asyncio.create_task(worker.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    beside: list[asyncio.Task[Any]] = [stopping]
    if starting.done():
        await starting
        freeze_loaded_objects()
        leaving = asyncio.create_task(link.leave.wait())
        recycler = Recycler(link, lambda: worker.started_jobs, options.max_jobs, options.max_memory_bytes)
        beside += [asyncio.create_task(recycler.run()), leaving]
        await asyncio.wait([stopping, leaving], return_when=asyncio.FIRST_COMPLETED)
    else:
        # The worker is still waiting for its server.
        starting.cancel()
        await asyncio.wait([starting])
    if stop.is_set():
        await worker.stop(options.grace)
    else:
        await worker.leave(options.grace, lambda seconds: link.channel.send(Leaving(seconds)), stop)
    await stop_actors(beside)


def _follow_parent(life: int, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, within: float) -> None:
    """Stop when the supervisor dies.

    The supervisor sends the heartbeats of its workers. Without them other workers take over the jobs, so this
    process must be gone after `within` seconds.
    """

    def watch() -> None:
        # Nobody ever writes to the pipe: the read returns when the supervisor is gone.
        os.read(life, 1)
        loop.call_soon_threadsafe(stop.set)
        timer = threading.Timer(within, os._exit, args=[1])
        timer.daemon = True
        timer.start()

    threading.Thread(target=watch, name="qbull-life", daemon=True).start()


if __name__ == "__main__":
    main()
