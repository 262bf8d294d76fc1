"""The first page of the reference."""

from __future__ import annotations

PAGE = """# Reference

Made from the code of this version when the site was built.

| page | from |
| --- | --- |
| [Python](python/index.md) | the public names, a page for each class: signatures, parameters, defaults, errors |
| [REST](rest/index.md) | a page for each group of endpoints, and the shapes of requests and responses |
| [Command line](command_line.md) | the commands of `qbull` by purpose, with an example and every option of each |
| [Environment](environment.md) | the variables that the configuration reads |
| [Metrics](metrics.md) | the metrics that Prometheus reads |
| [Redis names](redis_names.md) | every name that qbull uses on the server |
"""


def page() -> str:
    return PAGE
