"""Words: every English text has its Spanish, no view shows one that is not translated, and Argentina has its own variant."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from dashboard_server import ADMIN, VIEWS, DashboardServer, Person, person
from playwright.async_api import Browser, expect

from qbull.api.table import TABLE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("ui")]

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "ui" / "src"
ENTRY = re.compile(r'^  ("(?:[^"\\]|\\.)*"|[A-Za-z_]\w*):\s*("(?:[^"\\]|\\.)*"),$', re.MULTILINE)


def tables() -> list[tuple[str, str]]:
    """English and Spanish, as the files have them."""
    found = []
    for file in sorted((SOURCES / "words").glob("es*.ts")):
        for english, spanish in ENTRY.findall(file.read_text()):
            found.append((json.loads(english) if english.startswith('"') else english, json.loads(spanish)))
    return found


def used() -> set[str]:
    """The texts that the sources give to t()."""
    code = "\n".join(file.read_text() for file in SOURCES.rglob("*.ts*") if "words" not in file.parts)
    return {json.loads(text) for text in re.findall(r'\bt\(("(?:[^"\\]|\\.)*")', code)}


def audited() -> set[str]:
    """The actions of the audit log: those of endpoints and those of methods."""
    actions = {endpoint.audit for endpoint in TABLE if endpoint.audit}
    for file in (ROOT / "src" / "qbull").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            is_audited = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "audited"
            if is_audited and isinstance(node.args[0], ast.Constant):
                actions.add(str(node.args[0].value))
    return actions


async def test_every_english_text_has_its_spanish_once() -> None:
    english = [one for one, _ in tables()]

    assert used() - set(english) == set()
    assert audited() - set(english) == set()
    assert sorted({one for one in english if english.count(one) > 1}) == []
    assert [one for one, spanish in tables() if not spanish.strip()] == []


async def test_what_is_filled_in_is_the_same_in_both() -> None:
    wrong = [
        english
        for english, spanish in tables()
        if set(re.findall(r"\{\w+\}", spanish)) - set(re.findall(r"\{\w+\}", english))
    ]

    assert wrong == []


FAMILIAR = re.compile(
    r"\b(vos|t[uú]|tus|ti|te|tuy[oa]s?|acá|recién|saltead[oa]s?|dale|podés|puedes|debes|tienes|quieres)\b",
    re.I,
)
VOSEO = re.compile(r"\b\w+(?:á|é|í)\b", re.I)
"""Imperatives such as reintentá end like this, and few other words do."""
OTHER_WORDS = {"está", "esté", "quizá", "qué", "así", "sí", "aquí", "allí"}


def is_familiar(text: str) -> bool:
    return bool(FAMILIAR.search(text)) or any(word.lower() not in OTHER_WORDS for word in VOSEO.findall(text))


async def test_neutral_spanish_has_no_familiar_form() -> None:
    """Neither of Argentina nor of elsewhere: the texts say usted, or nobody."""
    sentences = (SOURCES / "words" / "es-server.ts").read_text().splitlines()
    texts = [spanish for _, spanish in tables()]
    argentine = (SOURCES / "words" / "es-ar.ts").read_text().splitlines()

    assert len(texts) > 700
    assert [one for one in (*texts, *sentences) if is_familiar(one)] == []
    assert sum(map(is_familiar, argentine)) >= 20


async def test_each_phrase_of_argentina_stands_for_a_neutral_one() -> None:
    spanish = "\n".join(
        file.read_text() for file in (SOURCES / "words").glob("es*.ts") if file.name != "es-ar.ts"
    )
    phrases = re.findall(r'^  \["([^"]+)", "([^"]+)"\],$', (SOURCES / "words" / "es-ar.ts").read_text(), re.M)

    assert len(phrases) > 10
    assert [neutral for neutral, _ in phrases if neutral not in spanish] == []
    assert [said for _, said in phrases if said in spanish] == []


VISIBLE = """() => {
    const found = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) if (walk.currentNode.parentElement.checkVisibility()) found.push(walk.currentNode.textContent.trim());
    for (const name of ["aria-label", "title", "placeholder", "data-label"])
        for (const one of document.querySelectorAll(`[${name}]`)) found.push(one.getAttribute(name));
    return found;
}"""


async def test_no_view_shows_a_text_that_is_not_translated(
    dashboard: DashboardServer, browser: Browser
) -> None:
    [failed] = dashboard.fail(1, "no such host")
    dashboard.ask("POST", "queues/slack/pause")
    dashboard.ask("POST", "queues/slack/resume")
    # Words that are the same in both languages, and names of tasks, queues and fields, prove nothing.
    names = {"alert", "queue", "task", "place", "export", "error", "worker", "state", "since"}
    english = {one for one, spanish in tables() if one != spanish and "{" not in one and one not in names}
    one = await person(dashboard, browser, ADMIN, locale="es-MX")

    shown: dict[str, list[str]] = {}
    for path in (*VIEWS, f"job?queue=email&id={failed}", "nowhere"):
        page = await one.go(path)
        await expect(page.locator(".bone")).to_have_count(0)
        left = sorted(english.intersection(await page.evaluate(VISIBLE)))
        if left:
            shown[path] = left

    assert shown == {}
    await one.context.close()


@pytest.mark.parametrize(("locale", "said"), [("es-MX", "Cópielo ahora"), ("es-AR", "Copialo ahora")])
async def test_spanish_is_neutral_and_argentine_where_the_browser_is(
    dashboard: DashboardServer, browser: Browser, locale: str, said: str
) -> None:
    one = await person(dashboard, browser, ADMIN, locale=locale)
    page = await one.go("access")

    await one.press("Nuevo token")
    await page.get_by_label("Nombre").fill(f"para-{locale}")
    await page.locator("dialog[open] button[type=submit]").click()

    await expect(page.get_by_role("dialog", name=f"Token para-{locale}")).to_contain_text(said)
    await expect(page.locator("html")).to_have_attribute("lang", "es-AR" if locale == "es-AR" else "es")
    await one.context.close()


async def test_the_variant_can_be_chosen(admin: Person) -> None:
    page = await admin.go("")
    await page.keyboard.press("?")

    await page.get_by_role("button", name="Español (Argentina)").click()

    await expect(page.locator("html")).to_have_attribute("lang", "es-AR")
    assert admin.wrong == []
