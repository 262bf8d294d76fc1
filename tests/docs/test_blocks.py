"""Every block of code of every page runs.

Python: all blocks of a page, from top to bottom in one namespace, on a real server. What a page takes for granted (a queue, a job, somebody's
database) is its scene in scenes.py. Shell: every `qbull …` and `make …` is one that there is, with options that it has; the commands
of the examples are run by tests/examples. JSON and TOML are parsed, SQL is run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
from given import Given
from pages import PAGES, ROOT, TRANSLATED, Block, blocks_of, name_of
from reading import READ, parsed
from scenes import ELSEWHERE, SCENES

import qbull
from qbull.cli.main import qbull as command_line
from qbull.environment import read_environment
from qbull.store.store import Store
from syntax_tree import parse_source

BLOCKS = [block for page in PAGES if not page.is_relative_to(TRANSLATED) for block in blocks_of(page)]
PYTHON = {name_of(block.page): block.page for block in BLOCKS if block.language == "python"}
LANGUAGES = {
    "python",
    "sh",
    "text",
    "json",
    "nginx",  # tests/ui/test_behind_nginx.py runs it
    "toml",
    "sql",
    "javascript",
    "typescript",
    "http",
    "mermaid",
    "yaml",
    "crontab",
}
NOT_RUN_AT_MOST = 25
SAMPLE_COLUMNS = 88
WIDE_AT_MOST = 8


@pytest.mark.parametrize("page", sorted(set(PYTHON) - ELSEWHERE))
async def test_the_python_of_a_page_runs(
    page: str,
    store: Store,
    server_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("QBULL_URL", server_url)
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.chdir(tmp_path)
    apps: dict[int, qbull.App] = {}

    async with Given(request, monkeypatch, tmp_path) as given:
        namespace = given.names
        namespace |= {"__name__": "page", "qbull": qbull, "app": given.app}
        if page in SCENES:
            namespace |= await SCENES[page](given)
        for block in blocks_of(PYTHON[page]):
            if block.language == "python" and not block.not_run:
                await run(block, namespace, given)
                apps |= {id(value): value for value in namespace.values() if isinstance(value, qbull.App)}
        for app in apps.values():
            await app.close()
            await asyncio.to_thread(app.close_sync)


async def run(block: Block, namespace: dict[str, Any], given: Given) -> None:
    """To its end, or until its page has seen enough of it; then the tests that it defines."""
    before = dict(namespace)
    tree = parse_source("\n" * (block.line - 1) + block.text, block.place)
    for statement in tree.body:
        if given.each is not None:
            namespace |= await given.each(ast.unparse(statement))
        alone = ast.Module([statement], [])
        code = compile(alone, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            await given.until_enough(eval(code, namespace))
        else:  # in a thread, as synchronous code is: it may call enqueue_sync
            await asyncio.to_thread(eval, code, namespace)
    for name, value in list(namespace.items()):
        if name.startswith("test_") and value is not before.get(name):
            await given.play(value)


def test_every_scene_has_its_page() -> None:
    assert {*SCENES, *ELSEWHERE} <= set(PYTHON)


def test_every_block_says_what_it_is() -> None:
    assert [
        f"{block.place}: {block.language or 'nothing'}" for block in BLOCKS if block.language not in LANGUAGES
    ] == []


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    not_run = [block for block in BLOCKS if block.not_run]

    assert len(not_run) <= NOT_RUN_AT_MOST, "\n".join(f"{block.place}: {block.not_run}" for block in not_run)
    for block in not_run:
        assert len(block.not_run) > 10, block.place
        if block.language == "python":
            compile(block.text, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("language", ["json", "toml"])
def test_data_can_be_read(language: str) -> None:
    read = {"json": json.loads, "toml": tomllib.loads}[language]
    for block in BLOCKS:
        if block.language == language and not block.not_run:
            read(block.text)


def test_sql_runs(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id serial PRIMARY KEY)")
        for role in ("web", "tasks", "relay"):
            connection.execute(f"CREATE ROLE {role}".encode())
        for block in BLOCKS:
            if block.language == "sql":
                connection.execute(block.text.encode())
        connection.rollback()  # roles are the whole server's


# ---- shell ----


def commands(block: Block) -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Each simple command: where it stands, the variables before it, its words."""
    text = block.text.replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), block.line):
        for part in re.split(r" && | \| ", line):
            words = shlex.split(part, comments=True)
            env = {}
            while words and re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0]):
                name, _, value = words.pop(0).partition("=")
                env[name] = value
            if words or env:
                yield f"{name_of(block.page)}:{number}", env, words


SHELL = [
    (place, env, words)
    for block in BLOCKS
    if block.language == "sh" and not block.not_run
    for place, env, words in commands(block)
]


def test_every_command_of_qbull_is_one_that_it_has() -> None:
    seen = 0
    for place, env, words in SHELL:
        if words[:2] == ["honcho", "run"]:
            words = words[2:]
        if words[:1] == ["qbull"]:
            seen += 1
            try:
                understand(words[1:])
                read_environment(
                    {name: value for name, value in env.items() if name in READ and "…" not in value}
                )
            except Exception as error:
                raise AssertionError(f"{place}: {shlex.join(words)}: {error}") from error

    assert seen > 50


def understand(words: list[str]) -> None:
    """As `qbull` itself would, the commands of a group too."""
    parsed(words)
    command = command_line.get_command(click.Context(command_line), words[0])
    if isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
        command.commands[words[1]].make_context(words[1], words[2:])


def test_every_variable_before_qbull_is_one_that_it_reads() -> None:
    others = {"DJANGO_SETTINGS_MODULE"}

    assert [
        (place, name)
        for place, env, words in SHELL
        if words[:1] == ["qbull"]
        for name in set(env) - READ - others
    ] == []


def test_every_target_of_make_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {(place, words[1]) for place, _, words in SHELL if words[:1] == ["make"]}

    assert {(place, target) for place, target in asked if target not in targets} == set()


def test_every_option_of_pip_install_is_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name
        for page in PAGES
        for some in re.findall(r"qbull\[([\w, ]+)\]", page.read_text())
        for name in some.split(",")
    }

    assert {name.strip() for name in named} <= {*extras}


def test_other_commands_are_few_and_known() -> None:
    known = {"qbull", "make", "curl", "pip", "python", "docker", "kubectl", "helm", "honcho", "uvicorn", "flask", "cd", ".", "export", "redis-cli", "valkey-cli", "mkdir", "gzip", "celery", "cp", "qbull-alive"}  # fmt: skip

    assert {(place, words[0]) for place, _, words in SHELL if words and words[0] not in known} == set()


def test_samples_are_88_columns_wide_at_most() -> None:
    """On the site, longer lines hide their end. The number of lines that are longer may only fall."""
    wide = [
        f"{block.place}: {line}"
        for block in BLOCKS
        if block.language == "python"
        for line in block.text.splitlines()
        if len(line) > SAMPLE_COLUMNS
    ]

    assert len(wide) <= WIDE_AT_MOST, "\n".join(wide)
