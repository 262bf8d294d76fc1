"""The commands of `qbull`, their arguments and options are as recorded. Help texts may change."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import click
import pytest
from click.testing import CliRunner
from goldens import compare


@pytest.fixture(name="root")
def find_root(monkeypatch: pytest.MonkeyPatch) -> click.Group:
    """The group of all commands: the one that the installed program `qbull` runs."""
    [program] = entry_points(group="console_scripts", name="qbull")
    run: list[Any] = []

    def remember(command: click.Command, *_: object, **__: object) -> int:
        run.append(command)
        return 0

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(click.Command, "main", remember)
        patch.setattr("sys.argv", ["qbull"])
        program.load()()
    [root] = run
    assert isinstance(root, click.Group)
    return root


def test_commands_and_flags_are_as_recorded(root: click.Group) -> None:
    compare("commands.txt", "\n".join(_described("qbull", root)))


def test_rights_of_redis_users_are_as_recorded(root: click.Group) -> None:
    found = {
        role: _rights(root, role)
        for role in ("producer", "worker", "relay", "reader", "admin", "api", "mover")
    }
    found["producer with replicas"] = _rights(root, "producer", "--durability", "replicated")
    lines = [f"{who}\n" + "\n".join(_by_kind(rights)) for who, rights in found.items()]
    compare("rights.txt", "\n".join(lines))


def _by_kind(rights: list[str]) -> Iterator[str]:
    for kind, sign in (("names", "~"), ("channels", "&"), ("commands", "+")):
        yield f"    {kind}: {' '.join(right[1:] for right in rights if right[0] == sign)}".rstrip()


def _rights(root: click.Group, *arguments: str) -> list[str]:
    """The rights that `qbull acl` prints for a role."""
    answer = CliRunner().invoke(root, ["acl", *arguments, "--server-version", "8.0"], catch_exceptions=False)
    return answer.stdout.split()[3:]


def _described(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    yield f"{path} (hidden)" if command.hidden else path
    for parameter in command.params:
        yield f"    {_parameter(parameter)}"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _described(f"{path} {name}", inner)


def _parameter(parameter: click.Parameter) -> str:
    """One line for a parameter: its names, its type, and every setting that is not the default."""
    facts = [_type(parameter.type)]
    if isinstance(parameter, click.Option):
        words = [*parameter.opts, *parameter.secondary_opts]
        facts = ["flag"] if parameter.is_flag else facts
        facts += ["hidden"] if parameter.hidden else []
    else:
        words = [parameter.human_readable_name]
    default = _default(parameter)
    facts += [f"default {default}"] if default else []
    facts += ["required"] if parameter.required else []
    facts += ["several times"] if parameter.multiple else []
    facts += ["any number of values"] if parameter.nargs == -1 else []
    facts += [f"else {parameter.envvar} of the environment"] if parameter.envvar else []
    return f"{' '.join(words)}: {', '.join(facts)}"


def _type(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"{kind.name} {kind._describe_range()}"
    return kind.name


def _default(parameter: click.Parameter) -> str:
    value = parameter.default
    if value is None or value is False or repr(value) == "Sentinel.UNSET" or value == ():
        return ""
    return "computed" if callable(value) else repr(value)
