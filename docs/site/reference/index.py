"""The first page of the reference."""

from __future__ import annotations

PAGE = """# Reference

Made from the code of this version when the site was built.

| page | from |
| --- | --- |
| [Python](python.md) | the public names, their signatures and what they say of themselves |
| [REST](rest.md) | the table of endpoints that drives routes, roles, validation, audit and OpenAPI |
| [Command line](command_line.md) | the commands and options of `qbull` |
| [Environment](environment.md) | the variables that the configuration reads |
| [Metrics](metrics.md) | what Prometheus is told |
| [Redis names](redis_names.md) | every name that qbull uses on the server |
"""


def page() -> str:
    return PAGE
