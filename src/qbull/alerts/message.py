"""Message: an alert as Slack blocks, as JSON for webhooks, and as text. Job data cannot inject markup."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from qbull.core.problems import AlertNotification, ProblemNotice, subject_of, text_of
from qbull.core.record import to_datetime
from qbull.observe.log import one_line

STATUS_EMOJI = {
    "firing": ":red_circle:",
    "still": ":large_orange_circle:",
    "resolved": ":large_green_circle:",
}
MAX_SLACK_HEADER_CHARS = 150
"""Slack's limit for a header."""


class MessageSender(NamedTuple):
    """The app's prefix, and the address of its dashboard."""

    app: str
    link: str | None = None

    def link_of(self, notice: ProblemNotice) -> str | None:
        """The dashboard's address for a problem: its job, or its queue, the schedules or the workers."""
        problem = notice.problem
        if self.link is None:
            return None
        match problem.kind:
            case "lost":
                page = "workers"
            case "missed" | "overdue":
                page = "schedules"
            case _ if problem.job:
                page = f"job?{urlencode({'queue': problem.queue, 'id': problem.job})}"
            case _:
                page = f"queue?{urlencode({'name': problem.queue})}"
        return f"{self.link.rstrip('/')}/ui/{page}"


def title_of(message: AlertNotification, sender: MessageSender) -> str:
    first, others = message.said[0], len(message.said) - 1 + message.more
    state = "resolved: " if first.status == "resolved" else ""
    more = f", and {others} more" if others else ""
    return f"{state}{subject_of(first.problem)}: {text_of(first)}{more} [{sender.app}]"


def to_json(message: AlertNotification, sender: MessageSender) -> dict[str, Any]:
    return {
        "app": sender.app,
        "at": _iso(message.at_ms),
        "text": title_of(message, sender),
        "problems": [_problem(notice, sender) for notice in message.said],
        "more": message.more,
    }


def to_slack(message: AlertNotification, sender: MessageSender) -> dict[str, Any]:
    title = title_of(message, sender)
    blocks: list[dict[str, Any]] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": _short(title, MAX_SLACK_HEADER_CHARS), "emoji": False},
        }
    ]
    for notice in message.said:
        blocks += _blocks(notice, sender)
    about = f"qbull, app {_escape(sender.app)}, {_iso(message.at_ms)}"
    if message.more:
        about += f"; {message.more} more problems are not shown"
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": about}]})
    return {"text": _escape(title), "blocks": blocks}


def to_text(message: AlertNotification, sender: MessageSender) -> str:
    parts = []
    for notice in message.said:
        problem = notice.problem
        lines = [
            f"{notice.status.upper()} {subject_of(problem)}: {text_of(notice)}, since {_iso(notice.since_ms)}"
        ]
        lines += [
            f"  {name}: {one_line(value)}"
            for name, value in (("task", problem.task), ("job", problem.job), ("reason", problem.reason))
            if value
        ]
        lines += [f"  {hint}" for hint in (sender.link_of(notice) or _command(notice),) if hint]
        parts.append("\n".join(lines))
    if message.more:
        parts.append(f"{message.more} more problems are not shown")
    return "\n\n".join(parts)


def _problem(notice: ProblemNotice, sender: MessageSender) -> dict[str, Any]:
    problem = notice.problem
    fields = {
        "queue": problem.queue,
        "task": problem.task,
        "job": problem.job,
        "schedule": problem.schedule,
        "reason": problem.reason,
        "link": sender.link_of(notice) or "",
    }
    return {
        "status": notice.status,
        "kind": problem.kind,
        "text": text_of(notice),
        "count": problem.count,
        "since": _iso(notice.since_ms),
        **{name: value for name, value in fields.items() if value},
    }


def _blocks(notice: ProblemNotice, sender: MessageSender) -> list[dict[str, Any]]:
    problem = notice.problem
    head = f"{STATUS_EMOJI[notice.status]} *{_escape(subject_of(problem))}*: {_escape(text_of(notice))}"
    section: dict[str, Any] = {"type": "section", "text": {"type": "mrkdwn", "text": head}}
    named = (
        ("Queue", problem.queue),
        ("Task", problem.task),
        ("Job", problem.job),
        ("Schedule", problem.schedule),
        ("Since", _iso(notice.since_ms)),
    )
    section["fields"] = [
        {"type": "mrkdwn", "text": f"*{name}*\n{_escape(_short(value, 500))}"}
        for name, value in named
        if value
    ]
    blocks = [section]
    if problem.reason and notice.status != "resolved":
        quoted = _escape(problem.reason)
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"```{quoted}```"}})
    link, command = sender.link_of(notice), _command(notice)
    if link is not None:
        what = "Open the job" if problem.job else "Open the page"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{_escape(link)}|{what}>"}})
    elif command:
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": f"`{_escape(command)}`"}]})
    return [*blocks, {"type": "divider"}]


def _command(notice: ProblemNotice) -> str:
    """The command to run if there is no dashboard to link to."""
    problem = notice.problem
    match problem.kind:
        case "failed" | "repeated" if problem.job:
            return f"qbull job {problem.queue} {one_line(problem.job)}"
        case "stale":
            return f"qbull stats {problem.queue}"
        case "missed" | "overdue":
            return "qbull schedules"
        case "lost":
            return "qbull workers"
        case _:
            return f"qbull jobs {problem.queue} --state failed"


def _escape(text: str) -> str:
    """Escape as Slack asks, so that no job can mention a whole channel."""
    text = one_line(text).replace("`", "'")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _iso(ms: int) -> str:
    return to_datetime(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
