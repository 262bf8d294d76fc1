"""`qbull acl`: print the ACL command that gives a Redis user exactly the rights it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from qbull.app import App
from qbull.core.durability import DURABILITIES, Durability
from qbull.core.ids import check_name
from qbull.errors import QbullError
from qbull.observe.log import one_line
from qbull.store.connection.address import Address
from qbull.store.connection.facts import WAITAOF_MIN_VERSION
from qbull.store.connection.requirements import MIN_SERVER_VERSION, read_info, version_in
from qbull.store.rights import ACL_ROLES, AclScope, acl, acl_at_sentinels

VERSION_TIMEOUT_SECONDS = 5.0
EMBEDDED_VERSION = (7, 2)
"""Every Valkey knows the commands of Redis 7.2."""


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    version = version_in(value)
    if version < MIN_SERVER_VERSION:
        raise click.BadParameter(f'"{value}": give a version from 7.0 on, for example 7.2', ctx, param)
    return version


def _user(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The name of a user. More than one word would be more than a name in the printed line."""
    if value is not None and (not value.isprintable() or len(value.split()) != 1 or " " in value):
        raise click.BadParameter(f"{value!r}: give a name without spaces, for example web", ctx, param)
    return value


@click.command(name="acl")
@click.argument("roles", nargs=-1, required=True, type=click.Choice(list(ACL_ROLES)), metavar="ROLE...")
@click.option("--user", callback=_user, help="Name of the Redis user.  [default: the first role]")
@click.option(
    "--queue", "queues", multiple=True, help="Limit the rights to this queue; may be given several times."
)
@click.option(
    "--write-only",
    is_flag=True,
    help="Only for the role producer: enqueue, but read neither payloads nor results.",
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    help="Durability profile that the user works with.  [default: QBULL_DURABILITY]",
)
@click.option("--prefix", help="Prefix of the app's keys on the server.  [default: QBULL_PREFIX]")
@click.option(
    "--url",
    help="Address of the server, which is asked for its version.  [default: QBULL_URL or REDIS_URL]",
)
@click.option(
    "--server-version",
    metavar="VERSION",
    callback=_version,
    help="Version of Redis (7.0, 7.2 …) or Valkey (8.0 …); then the server is not asked.",
)
def print_acl(
    roles: Sequence[str],
    user: str | None,
    queues: Sequence[str],
    write_only: bool,
    durability: Durability | None,
    prefix: str | None,
    url: str | None,
    server_version: tuple[int, int] | None,
) -> None:
    """Print the rights that a Redis user needs for a role.

    \b
    Roles: producer (enqueue, wait for results), worker (run jobs), relay (ship the outbox),
    reader (read only), admin (all commands for people, doctor included), api (serve, token), mover
    (move).

    \b
    Example:
      qbull acl producer --user web
      qbull acl producer --user partner --queue orders --write-only
      qbull acl worker producer --user worker --durability replicated --url redis+cluster://h1,h2

    This command changes nothing. It asks the server for its version, because a server refuses commands that
    it does not know. If it cannot, the line is for the oldest supported server, Redis 7.0, and every newer
    one accepts it too. Replace PASSWORD and run the printed line on every server, replicas included, because
    users are not replicated. A worker whose tasks enqueue jobs also needs the role producer. A worker whose
    app has a database also needs the role relay.
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
        write_only,
        server_version or _asked_version(app, address),
    )
    click.echo(acl(roles, scope, name))
    if address.topology == "sentinel":
        click.echo(f"# on every sentinel:\n{acl_at_sentinels(name, scope)}")


def _asked_version(app: App, address: Address) -> tuple[int, int]:
    """The version of the server; the oldest supported one if it does not tell."""
    if address.directory is not None:
        return EMBEDDED_VERSION

    async def ask() -> tuple[int, int]:
        async with app, asyncio.timeout(VERSION_TIMEOUT_SECONDS):
            versions = []
            for primary in await app._client().store.without_retry.primaries():
                info = await read_info(primary)
                versions.append(version_in(info.get("redis_version", "")))
            return min(versions, default=MIN_SERVER_VERSION)

    try:
        return asyncio.run(ask())
    except (QbullError, TimeoutError, OSError) as error:
        version = WAITAOF_MIN_VERSION if app.durability == "strict" else MIN_SERVER_VERSION
        oldest = ".".join(map(str, version))
        click.echo(
            f"# the server did not tell its version ({one_line(str(error) or 'timeout')}); this is for Redis "
            f"{oldest} and newer. Give --server-version to have the line for yours",
            err=True,
        )
        return version
