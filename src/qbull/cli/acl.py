"""`qbull acl`: print the ACL command that gives a Redis user exactly the rights it needs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from qbull.app import App
from qbull.config import check_name
from qbull.core.durability import DURABILITIES, Durability
from qbull.store.connection.address import Address
from qbull.store.rights import ACL_ROLES, AclScope, acl, acl_at_sentinels


@click.command(name="acl")
@click.argument("roles", nargs=-1, required=True, type=click.Choice(list(ACL_ROLES)), metavar="ROLE...")
@click.option("--user", help="Name of the Redis user.  [default: the first role]")
@click.option(
    "--queue", "queues", multiple=True, help="Limit the rights to this queue; may be given several times."
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    help="Durability profile that the user works with.  [default: QBULL_DURABILITY]",
)
@click.option("--prefix", help="Prefix of the app's keys on the server.  [default: QBULL_PREFIX]")
@click.option(
    "--url",
    help="Address of the server; only its kind and database matter.  [default: QBULL_URL or REDIS_URL]",
)
def print_acl(
    roles: Sequence[str],
    user: str | None,
    queues: Sequence[str],
    durability: Durability | None,
    prefix: str | None,
    url: str | None,
) -> None:
    """Print the rights that a Redis user needs for a role.

    \b
    Roles: producer (enqueue, wait for results), worker (run jobs), relay (ship the outbox),
    reader (read only), admin (all commands for people, doctor included), api (serve, token).

    \b
    Example:
      qbull acl producer --user web
      qbull acl worker producer --user worker --durability replicated --url redis+cluster://h1,h2

    This command sends nothing. Replace PASSWORD and run the printed line on every server, replicas included,
    because users are not replicated. A worker whose tasks enqueue jobs also needs the role producer. A worker
    whose app has a database also needs the role relay.
    """
    app = App(url, prefix=prefix, durability=durability)
    address = Address.parse(app.url)
    name = user or roles[0]
    scope = AclScope(
        app.prefix,
        tuple(check_name("queue", queue) for queue in queues),
        address.topology,
        address.kwargs.get("db", 0),
        app.durability if durability or app.environment.durability else None,
    )
    click.echo(acl(roles, scope, name))
    if address.topology == "sentinel":
        click.echo(f"# on every sentinel:\n{acl_at_sentinels(name)}")
