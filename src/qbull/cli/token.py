"""`qbull token`: manage the access tokens of the REST API."""

from __future__ import annotations

import getpass

import click

from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table
from qbull.core.access import TOKEN_ROLES, TokenRole, check_scope
from qbull.core.record import to_datetime
from qbull.errors import ConfigError
from qbull.store import audit
from qbull.store.verbs import tokens
from qbull.store.verbs.tokens import Token
from qbull.views.access import TokenView
from qbull.views.shape import iso_time, to_plain

TOKEN_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_TOKEN_LIFETIME_SECONDS = 10 * 366 * 86_400


@click.group()
def token() -> None:
    """Create, list, rotate and revoke tokens of the REST API.

    \b
    Example:
      qbull token create --role viewer --name grafana
    """


def _lifetime(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = int(value[:-1]) * TOKEN_UNIT_SECONDS[value[-1:]]
    except (ValueError, KeyError):
        seconds = 0
    if not 0 < seconds <= MAX_TOKEN_LIFETIME_SECONDS:
        raise click.BadParameter(
            f'"{value}": give a number followed by s, m, h or d, for example 90d', ctx, param
        )
    return float(seconds)


@token.command()
@click.option(
    "--role",
    type=click.Choice(TOKEN_ROLES),
    required=True,
    help="Role of the token: a viewer reads, an operator also runs, pauses, retries and cancels, an admin "
    "can do everything.",
)
@click.option("--name", required=True, help="Name of the owner; the audit log records it.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="PATTERN",
    help="Queue that the token is for, a name or a pattern such as mail-*; repeatable.  [default: all]",
)
@click.option(
    "--expires",
    metavar="90d",
    callback=_lifetime,
    help="Lifetime of the token.  [default: until it is revoked]",
)
@with_reason
@on_target
def create(
    target: Target, role: TokenRole, name: str, queues: tuple[str, ...], expires: float | None
) -> None:
    """Create a token and print it; the server stores its digest.

    \b
    Example:
      qbull token create --role admin --name deploy --expires 90d
      qbull token create --role operator --name mail-team --queue "mail-*"
    """
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise ConfigError(f"name={name!r}: use 1 to 100 printable characters")
    scope = check_scope(queues)

    async def main() -> None:
        store = target.app._client().store
        async with audit.entry(store, "create token", name):
            _, text = await tokens.create(store, name, role, by=_user(), lasts=expires, queues=scope)
        click.echo(text)

    target.run(main)


@token.command()
@click.argument("id")
@click.option(
    "--overlap",
    metavar="1h",
    callback=_lifetime,
    help="Time for which the present secret stays valid.  [default: none]",
)
@click.option(
    "--expires",
    metavar="90d",
    callback=_lifetime,
    help="Lifetime of the token from now on.  [default: as before]",
)
@with_reason
@on_target
def rotate(target: Target, id: str, overlap: float | None, expires: float | None) -> None:
    """Give a token a new secret and print it.

    Name, role and queues stay. Sessions that were opened with the present secret end with it.

    \b
    Example:
      qbull token rotate 3f9a1c02d4 --overlap 1h
    """

    async def main() -> None:
        store = target.app._client().store
        async with audit.entry(store, "rotate token", id, overlap=overlap or 0.0):
            _, text = await tokens.rotate(store, id, overlap=overlap or 0.0, lasts=expires)
        click.echo(text)

    target.run(main)


@token.command("list")
@on_target
@as_json
def list_tokens(target: Target, as_json: bool) -> None:
    """List the tokens, newest first.

    With --json: a list of {"id", "name", "role", "queues", "createdAt", "createdBy", "rotatedAt",
    "expiresAt", "lastUsedAt"}.
    """

    async def main() -> None:
        await target.store.open()
        listed = await tokens.list_all(target.store)
        if as_json:
            print_json([to_plain(TokenView.of(one)) for one in listed])
        elif listed:
            rows: list[list[object]] = [
                [
                    one.id,
                    one.name,
                    one.role,
                    " ".join(one.queues) or "all",
                    ago(to_datetime(one.created_ms)),
                    _ago(one.used_ms),
                    _until(one),
                ]
                for one in listed
            ]
            print_table(("id", "*name", "role", "queues", "created", "last used", "expires"), rows)
        else:
            click.echo('no tokens yet; create one with "qbull token create"', err=True)

    target.run(main)


@token.command()
@click.argument("id")
@with_reason
@on_target
def revoke(target: Target, id: str) -> None:
    """Revoke a token; servers refuse it within two seconds.

    \b
    Example:
      qbull token revoke 3f9a1c02d4
    """

    async def main() -> None:
        store = target.app._client().store
        async with audit.entry(store, "revoke token", id):
            await tokens.revoke(store, id)
        click.echo("revoked")

    target.run(main)


def _ago(ms: int | None) -> str | None:
    return None if ms is None else ago(to_datetime(ms))


def _until(one: Token) -> str:
    return "never" if one.expires_ms is None else iso_time(to_datetime(one.expires_ms))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A container may have no name for its user.
        return "?"
