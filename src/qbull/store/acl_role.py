"""A role of a Redis user: the scripts, commands and names that it needs. rights.py has all roles."""

from __future__ import annotations

import msgspec


class AclRole(msgspec.Struct, frozen=True):
    """The scripts (`verbs`), commands and names of a role. `names` are the last parts of app-wide names.

    A script for the whole app gets the prefix of its names as its key: a name without a last part. A user who
    could write the names of tokens and sessions could become an admin of the API, so only that role has all
    names.
    """

    verbs: tuple[str, ...]
    commands: tuple[str, ...]
    names: tuple[str, ...]
    channels: tuple[str, ...] = ()

    def __or__(self, other: AclRole) -> AclRole:
        return AclRole(
            (*self.verbs, *other.verbs),
            (*self.commands, *other.commands),
            (*self.names, *other.names),
            (*self.channels, *other.channels),
        )
