"""Every lint of the house can fail: a small tree without the fault passes, the same tree with it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from house.__main__ import CEILINGS, REPOSITORY, main
from house.checks import CHECKS
from house.source import House
from house.spelling import LIST, dictionary

Count = Callable[..., list[str]]
LAYERS = '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = [{}]\n'
MAP = """```text
src/qbull/
  __init__.py app.py    the front door
  store/    speaks Redis
```
"""
CLEAN = {
    "src/qbull/__init__.py": '__all__ = ["App"]\n',
    "src/qbull/app.py": '"""The app."""\n',
    "src/qbull/store/__init__.py": "",
    "pyproject.toml": LAYERS.format('"qbull.app", "qbull.store"'),
    "CONTRIBUTING.md": MAP,
}


def build(root: Path, files: dict[str, str]) -> Path:
    for path, text in (CLEAN | files).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.fixture
def count(tmp_path: Path) -> Count:
    """`count("units", app="A = 1")`: what one lint finds in the clean tree with some files replaced."""

    def run(name: str, files: dict[str, str] | None = None, app: str | None = None) -> list[str]:
        replaced = (files or {}) | ({} if app is None else {"src/qbull/app.py": app})
        (check,) = (check for check in CHECKS if check.name == name)
        return [str(finding) for finding in check.find(House(build(tmp_path, replaced)))]

    return run


def test_modules_in_the_root_are_counted(count: Count) -> None:
    assert count("root") == [
        "src/qbull/__init__.py:1  __init__.py is in the root",
        "src/qbull/app.py:1  app.py is in the root",
    ]
    assert len(count("root", {"src/qbull/other.py": ""})) == 3


def test_the_built_dashboard_is_no_source(count: Count) -> None:
    assert count("columns", {"src/qbull/ui/assets/some.py": "#" * 200}) == []


def test_a_room_without_a_layer_is_found(count: Count) -> None:
    assert count("layers") == []
    assert count("layers", {"src/qbull/core/__init__.py": "", "src/qbull/errors.py": ""}) == [
        "src/qbull/errors.py:1  qbull.errors is in no layer of pyproject.toml",
        "src/qbull/core/__init__.py:1  qbull.core is in no layer of pyproject.toml",
    ]


def test_layers_side_by_side_count(count: Count) -> None:
    text = LAYERS.format('"qbull.app : qbull.a | qbull.b", "(qbull.store)"')

    assert count("layers", {"src/qbull/a.py": "", "src/qbull/b.py": "", "pyproject.toml": text}) == []


def test_a_room_may_lie_in_several_layers_if_all_its_parts_do(count: Count) -> None:
    text = LAYERS.format('"qbull.app", "qbull.store.high", "qbull.store.low"')
    parts = {f"src/qbull/store/{part}.py": "" for part in ("high", "low", "low/__init__", "low/inner")}

    assert count("layers", {"pyproject.toml": text} | parts) == []
    assert count("layers", {"src/qbull/store/other.py": ""}) == []
    assert count("layers", {"pyproject.toml": text}) == [
        "src/qbull/store/other.py:1  qbull.store.other is in no layer of pyproject.toml"
    ]


def test_a_contract_that_forbids_is_no_layer(count: Count) -> None:
    text = CLEAN["pyproject.toml"].replace("layers", "forbidden", 1)

    assert len(count("layers", {"pyproject.toml": text})) == 2


def test_the_map_leaves_nothing_out_and_invents_nothing(count: Count) -> None:
    assert count("map") == []
    assert count("map", {"src/qbull/core/__init__.py": ""}) == [
        "src/qbull/core/__init__.py:1  core/ is not on the map in CONTRIBUTING.md"
    ]
    invented = CLEAN["CONTRIBUTING.md"].replace("  store/", "  store/ core/ gone.py")
    assert count("map", {"CONTRIBUTING.md": invented}) == [
        "CONTRIBUTING.md:4  gone.py is on the map and does not exist"
    ]


def test_the_map_ends_with_the_package_and_its_texts_may_be_continued(count: Count) -> None:
    longer = CLEAN["CONTRIBUTING.md"].replace(
        "Redis\n", "Redis, and\n                more\ntests/    none of it\n  core/  unit\n"
    )

    assert count("map", {"CONTRIBUTING.md": longer}) == []


@pytest.mark.parametrize("base", ["Protocol", "Protocol[T]", "typing.Protocol", "Other, Protocol"])
def test_a_protocol_must_be_a_known_extension_point(count: Count, base: str) -> None:
    assert count("protocols", app=f"class ResultStore({base}): ...") == []
    assert count("protocols", app=f"class Home({base}): ...") == [
        "src/qbull/app.py:1  Protocol Home is no known extension point"
    ]


@pytest.mark.parametrize(
    "name", ["class Found: ...", "MOST = 1", "_MOST = 1", "MOST: int = 2", "if True:\n    MOST = 3"]
)
def test_a_name_is_defined_once(count: Count, name: str) -> None:
    assert count("clashes", app=name) == []
    (finding,) = count("clashes", {"src/qbull/store/other.py": "class Found: ...\nMOST = 1"}, app=name)
    assert "is also defined in store/other.py:" in finding


@pytest.mark.parametrize(
    "text",
    [
        'T = TypeVar("T")',
        "LIMIT = other.LIMIT",
        "ENDPOINTS = ()",
        "small = 1",
        "def f():\n    X = 1",
        "X.Y = 1",
    ],
)
def test_some_names_may_be_defined_twice(count: Count, text: str) -> None:
    assert count("clashes", {"src/qbull/store/other.py": text}, app=text) == []


def test_names_of_other_libraries_are_free_in_compat_only(count: Count) -> None:
    twice = {"src/qbull/compat/rq.py": "class Job: ..."}

    assert count("clashes", twice, app="class Job: ...") == []
    assert (
        len(count("clashes", twice | {"src/qbull/store/job.py": "class Job: ..."}, app="class Job: ...")) == 1
    )


@pytest.mark.parametrize(
    "text",
    [
        "LOOK = 5.0",
        "BATCH = -1",
        "_SIZE = 1 << 20",
        "A: int = 2 * B",
        "MAX_WAIT = 1",
        "MAX_SPEED_X = 1",
        "MS = 1",
    ],
)
def test_a_number_needs_a_unit(count: Count, text: str) -> None:
    (finding,) = count("units", app=text)

    assert "has no unit in its name" in finding


@pytest.mark.parametrize(
    "text",
    [
        "LOOK_SECONDS = 5.0",
        "_EVERY_MS = 1",
        "PAGE_BYTES = 1 << 20",
        "MAX_PARTITIONS = 8",
        "MAX_JOBS_PER_CALL = 8",
        "SECONDS_PER_DAY = 60 * 60 * 24",
        "SLOTS = 16384",
        'NAME = "x"',
        "ON = True",
        "BOTH = A | B",
    ],
)
def test_other_constants_pass(count: Count, text: str) -> None:
    assert count("units", app=text) == []


def test_no_file_is_named_with_a_retired_word(count: Count) -> None:
    files = {
        "src/qbull/store/_hand.py": "",
        "src/qbull/store/lua/raze.lua": "",
        "src/qbull/wire/a.py": "",
        "src/qbull/wire/b.py": "",
    }

    assert count("retired") == []
    assert [finding.partition(":")[0] for finding in count("retired", files)] == [
        "src/qbull/store/_hand.py", "src/qbull/store/lua/raze.lua", "src/qbull/wire/a.py"
    ]  # fmt: skip


def test_the_glossary_explains_house_words(count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("house.names.GLOSSARY_WORDS", ("train", "crash board", "lanes"))
    text = "| word |\n| --- |\n| **train** | … |\n| **crash board**, **bell** | … |\n\n## Lane\n"

    assert count("glossary", {"docs/concepts/glossary.md": text}) == []
    assert count("glossary", {"docs/concepts/glossary.md": "**bell**\n## Lane\n"}) == [
        'docs/concepts/glossary.md:1  "train" has no entry',
        'docs/concepts/glossary.md:1  "crash board" has no entry',
    ]


def test_lines_are_110_columns_wide(count: Count) -> None:
    assert count("columns", app="#" * 110) == []
    assert count("columns", {"src/qbull/store/lua/a.lua": "\n" + "-" * 111}, app="#" * 111) == [
        "src/qbull/app.py:1  111 columns",
        "src/qbull/store/lua/a.lua:2  111 columns",
    ]


def test_files_have_400_lines(count: Count) -> None:
    assert count("files", app="\n" * 400) == []
    assert count("files", app="\n" * 401) == ["src/qbull/app.py:1  401 lines"]


def test_functions_have_60_lines(count: Count) -> None:
    def python(lines: int) -> str:
        return "class A:\n    async def f(self):\n" + "        pass\n" * (lines - 1)

    def lua(lines: int) -> dict[str, str]:
        text = "local function f()\n  if a then\n  end\n" + "  b()\n" * (lines - 4) + "end\nlocal c\n"
        return {"src/qbull/store/lua/a.lua": text}

    assert count("functions", lua(60), app=python(60)) == []
    assert count("functions", lua(61), app=python(61)) == [
        "src/qbull/app.py:2  A.f has 61 lines",
        "src/qbull/store/lua/a.lua:1  this function has 61 lines",
    ]


def test_functions_have_six_parameters(count: Count) -> None:
    assert count("parameters", app="class A:\n    def f(self, a, b, c, /, d, *e, x, y, **z): ...") == []
    assert count("parameters", app="@overload\ndef f(a, b, c, d, e, f, g): ...") == []
    assert count("parameters", app="class A:\n    def f(cls, a, b, c, /, d, *, x, y, z): ...") == [
        "src/qbull/app.py:2  A.f has 7 parameters"
    ]


def test_functions_are_found_wherever_they_are(count: Count) -> None:
    text = """
if a:
    try: ...
    except E:
        def first(a, b, c, d, e, f, g):
            with x:
                match y:
                    case 1:
                        async def second(a, b, c, d, e, f, g): ...
else:
    for x in y:
        class Third:
            def __init__(self, a, b, c, d, e, f, g): ...
"""

    found = [finding.split("  ")[1].split()[0] for finding in count("parameters", app=text)]
    assert sorted(found) == ["Third.__init__", "first", "first.second"]


@pytest.mark.parametrize(
    ("path", "text", "public"),
    [
        ("app.py", "class App:\n    def f(self, SEVEN): ...", True),
        ("app.py", "class App:\n    def __init__(self, SEVEN): ...", True),
        ("app.py", "class App:\n    def _f(self, SEVEN): ...", False),
        ("app.py", "class Other:\n    def f(self, SEVEN): ...", False),
        ("_app.py", "class App:\n    def f(self, SEVEN): ...", False),
        ("cli/a.py", "@click.command()\ndef f(SEVEN): ...", True),
        ("cli/a.py", "def f(SEVEN): ...", False),
        ("compat/a.py", "def f(SEVEN): ...", True),
        ("compat/_a/b.py", "def f(SEVEN): ...", False),
    ],
)
def test_only_public_functions_have_more(count: Count, path: str, text: str, public: bool) -> None:
    found = count("private", {f"src/qbull/{path}": text.replace("SEVEN", "a, b, c, d, e, f, g")})

    assert found == [] if public else len(found) == 1


def test_files_that_list_an_option_are_counted(count: Count) -> None:
    files = {
        "src/qbull/a.py": "def f(expires): ...",
        "src/qbull/b.py": "class A:\n    expires: int",
        "src/qbull/c.py": 'option("--expires")',
        "src/qbull/d.py": 'given["expires"] = 1\nmore["expires"] = 2',
        "src/qbull/used.py": "f(options.expires)",
        "src/qbull/compat/celery.py": "def f(expires): ...",
        "src/qbull/tokens.py": "def f(expires): ...",
    }

    assert count("option") == []
    assert [found.partition(":")[0][-4:] for found in count("option", files)] == [
        "a.py",
        "b.py",
        "c.py",
        "d.py",
    ]


@pytest.mark.parametrize(("name", "word"), [("durability", "replicated"), ("backoff", "exponential")])
def test_files_that_spell_a_member_are_counted(count: Count, name: str, word: str) -> None:
    files = {
        "src/qbull/store/lua/a.lua": f'if a == "{word}" then end',
        "src/qbull/b.py": f'"""say `"{word}"`"""',
    }

    assert count(name) == []
    assert len(count(name, files, app=f'A = ("{word}", "b")\nB = "{word}"')) == 2


@pytest.mark.parametrize(
    "text",
    [
        "# so whoever waits",
        '"""Whoever waits."""',
        '"""What is kept."""',
        "# First. What is kept.",
        "# First.\n# What is kept.",
        'f"{name} is away for now"',
        'log("it says so")',
        "# gone for good",
        "# a run that has begun",
        "# it is to be",
    ],
)  # fmt: skip
def test_idioms_are_counted(count: Count, text: str) -> None:
    assert len(count("prose", app=text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# Whatever",
        '"""What is kept?"""',
        "# Tell what is kept",
        "# see `begin.lua` first",
        'KEY = "begin"',
        "whoever = begun",
    ],
)
def test_other_texts_pass(count: Count, text: str) -> None:
    assert count("prose", app=text) == []


def test_an_idiom_is_found_at_its_line_and_in_lua(count: Count) -> None:
    text = '"""First.\n\nWhat is kept.\n"""\n\n# one\n# for good\nx = 1  # begun\n'

    found = count(
        "prose", {"src/qbull/store/lua/a.lua": "local a = 1 -- one\n-- first\n-- whoever\n"}, app=text
    )

    assert sorted(finding.partition("  ")[0] for finding in found) == [
        "src/qbull/app.py:3", "src/qbull/app.py:7", "src/qbull/app.py:8", "src/qbull/store/lua/a.lua:3"
    ]  # fmt: skip


def test_where_for_if_is_counted(count: Count) -> None:
    assert count("where", app="# the directory where files lie") == []
    assert len(count("where", app="# refused where there is no server, or where\n# none was")) == 2


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("page-idiom", "It is kept for whoever asks."),
        ("page-word", "Nobody reads it."),
        ("page-word", "Each run is one job, however many workers there are."),
        ("page-idiom", "| a | the server is away |"),
        ("page-what", "- What runs ends."),
        ("page-what", "Nothing is lost. What waits keeps waiting."),
        ("page-what", "Nothing is lost; what waits keeps waiting."),
        ("page-where", "It is refused where there is none."),
        ("page-where", "Where no password is set, one is made."),
    ],
)
def test_the_english_of_a_page_is_counted(count: Count, name: str, line: str) -> None:
    assert count(name, {"docs/guides/one.md": f"# What is kept\n\n{line}\n"})[0].startswith(
        "docs/guides/one.md:3"
    )


@pytest.mark.parametrize(
    "line",
    [
        "# What waits",
        "What is kept?",
        "`what runs` is code",
        "```text\nWhat runs, wherever whoever begins\n```",
        "[a page](where/what.md)",
        "You see where the job is.",
        "The directory where the files are.",
    ],
)
def test_other_lines_of_a_page_pass(count: Count, line: str) -> None:
    found = {
        name: count(name, {"README.md": line})
        for name in ("page-idiom", "page-word", "page-what", "page-where")
    }

    assert not any(found.values()), found


def test_a_page_in_another_language_is_not_read(count: Count) -> None:
    assert count("page-where", {"README.es.md": "where"}) == []
    assert count("spelling", {"README.es.md": "el trabajo"}) == []


@pytest.mark.parametrize(
    "files",
    [
        {"docs/some.md": "The server recieves a job."},
        {"docs/some.md": "A job's atempts are counted."},
        {"src/qbull/app.py": '"""Recieves a job."""\n'},
        {"src/qbull/app.py": "# It recieves a job.\n"},
        {"src/qbull/app.py": 'raise ValueError("it recieves nothing")\n'},
    ],
)
def test_a_word_that_no_dictionary_has_is_counted(count: Count, files: dict[str, str]) -> None:
    [found] = count("spelling", files)

    assert "add it to tools/house/words.txt" in found


@pytest.mark.parametrize(
    "line",
    [
        "qbull redrives cancelled jobs in Valkey; a worker's licence is its own.",
        "Run `qbul wroker`, or [read](pagge.md) on https://exampel.org/pagge.",
        "```sh\nqbul\n```",
        "It takes foo_bar, --flagg, MODULE:APP and pagge.py.",
    ],
)
def test_code_names_and_our_own_words_are_spelled_right(count: Count, line: str) -> None:
    assert count("spelling", {"docs/some.md": line}) == []


def test_the_list_has_only_words_that_the_dictionary_lacks() -> None:
    lines = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]

    assert len(lines) == len(set(lines))
    assert [line for line in lines if dictionary().lookup(line)] == []


def lint(root: Path, *arguments: str) -> int:
    return main(["--root", str(root), *arguments])


@pytest.fixture
def short_glossary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("house.names.GLOSSARY_WORDS", ())


@pytest.mark.usefixtures("short_glossary")
def test_a_clean_house_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, {})

    assert lint(tmp_path) == 0
    assert "units          0        0     0  numeric constants without a unit" in capsys.readouterr().out


@pytest.mark.usefixtures("short_glossary")
def test_a_count_above_its_goal_fails_and_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path, {"src/qbull/app.py": "LOOK = 5\n"})

    assert lint(tmp_path) == 1
    out = capsys.readouterr().out
    assert "src/qbull/app.py:1  LOOK = 5 has no unit in its name" in out
    assert "Above the ceiling: units." in out


@pytest.mark.usefixtures("short_glossary")
def test_a_ceiling_holds_until_it_is_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, {"src/qbull/app.py": "LOOK = 5\n", CEILINGS: "units = 1\n"})
    assert lint(tmp_path) == 0
    assert "LOOK" not in capsys.readouterr().out

    build(tmp_path, {"src/qbull/app.py": "LOOK = 5\nBATCH = 5\n"})
    assert lint(tmp_path) == 1


@pytest.mark.usefixtures("short_glossary")
def test_ceilings_are_lowered_and_never_raised(tmp_path: Path) -> None:
    two = {"src/qbull/app.py": "LOOK = 5\nBATCH = 5\n"}
    build(tmp_path, two | {CEILINGS: "units = 3\ncolumns = 7\n"})

    assert lint(tmp_path, "--lower") == 0
    assert (tmp_path / CEILINGS).read_text().splitlines()[2:] == ["units = 2"]

    build(tmp_path, two | {CEILINGS: "units = 1\n"})
    assert lint(tmp_path, "--lower") == 1
    assert (tmp_path / CEILINGS).read_text().splitlines()[2:] == ["units = 1"]


@pytest.mark.usefixtures("short_glossary")
def test_violations_below_the_ceiling_are_shown_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path, {"src/qbull/app.py": "LOOK = 5\n", CEILINGS: "units = 1\n"})

    assert lint(tmp_path, "units") == 0
    assert "src/qbull/app.py:1  LOOK = 5" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        lint(tmp_path, "unitz")


def test_this_repository_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(House(REPOSITORY).modules) > 100
