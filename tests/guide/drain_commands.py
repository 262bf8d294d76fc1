"""The `qbull drain` commands of a page, with the address of the old server in them."""

from __future__ import annotations

import shlex

from blocks import PLACE
from pages import DOCS, blocks_of


def drain_commands(page: str, url: str) -> list[list[str]]:
    """The arguments of each `qbull drain` on a page, in order."""
    commands = []
    for block in blocks_of(DOCS / "guides" / f"{page}.md"):
        for line in block.text.splitlines() if block.language == "sh" else ():
            program, *arguments = shlex.split(line)
            if program == "qbull" and arguments[0] == "drain":
                commands.append([url if argument == PLACE else argument for argument in arguments])
    return commands
