"""The templates of `qbull init --template`: complete systems with tests, the examples of the repository.

The wheel has them in qbull/cli/template_files (pyproject.toml); in a clone they are read from examples/.
"""

from __future__ import annotations

from pathlib import Path

from qbull.errors import ConfigError

TEMPLATES = {
    "orders": "an API that answers at once, workers, PostgreSQL: jobs in your transaction",
    "schedulers": "cron jobs of several servers, each run once, with REST API and dashboard",
    "platform": "mail, Slack, files and maintenance for several tenants",
    "chat": "messages in order by phone number, on pods with or without fixed numbers",
    "agent": "an AI agent as a durable task, with tools, streamed tokens and human approval",
}
"""The description of each template."""

_PACKED_DIRECTORY = Path(__file__).with_name("template_files")
_CLONE_DIRECTORY = Path(__file__).parents[3] / "examples"
_CLONE_LINK = "](../../"
_PUBLIC_LINK = "](https://github.com/qbull/qbull/blob/main/"
_LEFT_BEHIND = frozenset({".env", ".qbull", ".venv", "__pycache__", ".pytest_cache", "chats", "uploads"})
"""Files and directories that an example in a clone has after it was run."""


def template_texts(name: str) -> dict[str, str]:
    """The text of each file of a template by its path. Links to other pages lead to the repository.

    Raises:
        ConfigError: This installation has no templates.
    """
    source = next((one for one in (_PACKED_DIRECTORY / name, _CLONE_DIRECTORY / name) if one.is_dir()), None)
    if source is None:
        raise ConfigError(f'the template "{name}" is not part of this installation; install qbull from PyPI')
    texts = {
        path.relative_to(source).as_posix(): path.read_text("utf-8")
        for path in sorted(source.rglob("*"))
        if path.is_file() and path.suffix != ".db" and not _LEFT_BEHIND & set(path.relative_to(source).parts)
    }
    texts = {
        path: text.replace(_CLONE_LINK, _PUBLIC_LINK) if path.endswith(".md") else text
        for path, text in texts.items()
    }
    return texts | {".gitignore": "\n".join([*sorted(_LEFT_BEHIND), "*.db", ""])}
