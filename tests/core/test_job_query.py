"""The query language: its text, and the jobs that it selects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.failures import fingerprint
from qbull.core.job_query import JobQuery, QueriedJob, parse_query, texts_in, without_values
from qbull.core.query_text import MAX_QUERY_TERMS, QueryTerm, QueryValue, read_terms
from qbull.core.record import STATES, ExtendedBody
from qbull.errors import ArgumentsError

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
ERROR = "SMTPError: 421 try again later"
JOB = QueriedJob(
    "0199c2f0a1b27000b4a1f3c2d5e6f708",
    "email",
    "failed",
    ExtendedBody(
        "verify",
        b'{"customer_id": "c-606", "cents": 1250, "gift": false, "items": [{"sku": "Blue Shoe"}], "pin": "hidden-1"}',
        key="c-606",
        schedule="nightly",
    ),
    ERROR,
    "host:1",
)


def parsed(text: str) -> JobQuery:
    return parse_query(text, NOW, UTC)


@pytest.mark.parametrize(
    ("query", "accepted"),
    [
        ("", True),
        ("queue:email state:failed task:verify args.customer_id:c-606 error:421", True),
        ("queue:email,sms state:failed,cancelled", True),
        ("queue:sms", False),
        ("-queue:sms -state:completed", True),
        ("-queue:em*", False),
        ("task:ver*", True),
        ('task:"ver*"', False),
        ("task:*if*", True),
        ("key:c-606", True),
        ("-key:*", False),
        ("id:0199c2f0a1b27000b4a1f3c2d5e6f708", True),
        ("id:0199*", True),
        ("id:0199", False),
        ("error:SMTPERROR", True),
        ('error:"421 try"', True),
        ("error:421*later", True),
        ("error:later*421", False),
        (f"fingerprint:{fingerprint(ERROR)}", True),
        ("worker:host:1 schedule:nightly", True),
        ("flow:*", False),
        ("args.cents:1250 args.gift:false args.items.0.sku:Blue*", True),
        ("args.items:*", True),
        ("args.items:x", False),
        ("args.nothing:*", False),
        ("-args.nothing:*", True),
        ("d5e6f708", True),
        ("e6f708", True),
        ("0199c2", True),
        ("f708", False),  # A name such as "ada" is in every id that was generated in the same hours.
        ("a1*08", False),
        ("C-606", True),
        ('"blue shoe"', True),
        ("blue shoe", True),
        ("-blue", False),
        ("421", False),  # Words are searched in ids, keys and arguments, not in errors.
        ("STATE:failed", True),
    ],
)
def test_a_job_matches_if_all_terms_hold(query: str, accepted: bool) -> None:
    assert parsed(query).accepts(JOB) is accepted


@pytest.mark.parametrize("word", ["ada", "ADA", "a*a"])
def test_a_short_word_is_searched_in_chosen_ids_but_not_in_generated_ones(word: str) -> None:
    body = ExtendedBody("verify", b"{}")

    assert parsed(word).accepts(QueriedJob("order-ada-7", "email", "failed", body))
    assert not parsed(word).accepts(QueriedJob("01a1eadabd02700083a438e793f41aab", "email", "failed", body))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("colour:red", '"colour" is no field; use one of queue, state'),
        ("args:x", '"args" is no field'),
        ("args.NAME.².x:1", "is no position in a list"),
        ("state:dead", "dead is no state; use one of waiting"),
        ("task:", '"task:" needs a value'),
        ("task:a,", '"task:" needs a value'),
        ('error:"421', "at character 7: a quotation mark is not closed"),
        ("a - b", "excludes the term that follows it"),
        ("since:soon", '"soon" is not a time'),
        ("-since:1h", "give one time, such as since:1h"),
        ("since:1h,2h", "give one time"),
        ("x " * (MAX_QUERY_TERMS + 1), "more than 30 terms"),
        ("x" * 1001, "1,001 characters"),
    ],
)
def test_a_text_that_is_no_query_is_refused_with_the_remedy(query: str, message: str) -> None:
    with pytest.raises(ArgumentsError, match="query") as refused:
        parsed(query)

    assert message in str(refused.value)


def test_the_period_of_a_query_is_the_narrowest_of_its_times() -> None:
    query = parsed("since:2h since:1h until:now until:30m")

    assert (query.since, query.until) == (NOW - timedelta(hours=1), NOW - timedelta(minutes=30))


def test_hidden_values_are_not_found_by_words_errors_or_arguments() -> None:
    secret = QueriedJob(
        JOB.id,
        JOB.queue,
        JOB.state,
        JOB.body,
        "ValueError: hidden-1 is wrong",
        hidden=frozenset({"pin"}),
    )

    for query in (
        "hidden-1",
        "hidden",
        "error:hidden-1",
        "error:hidden*",
        "args.pin:hidden-1",
        "args.pin:h*",
    ):
        assert not parsed(query).accepts(secret), query
    assert parsed("error:wrong").accepts(secret)


def test_words_leave_arguments_alone_for_callers_who_do_not_see_them() -> None:
    query = JobQuery(parsed("shoe").terms, words_in_arguments=False)

    assert not query.accepts(JOB)


def test_a_log_has_the_names_of_arguments_and_no_words() -> None:
    assert without_values('queue:email -args.user:"u 1" secret task:x') == "queue:email -args.user:… … task:x"


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
VALUES = st.lists(TEXTS, min_size=1, max_size=3).map(
    lambda parts: QueryValue((parts[0], *(part for part in parts[1:-1] if part), *parts[1:][-1:]))
)
FIELDS = st.sampled_from(["queue", "task", "key", "id", "error", "worker", "args.a", "args.b.0"])
TERMS = st.one_of(
    st.builds(QueryTerm, FIELDS, st.lists(VALUES, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(QueryTerm, st.just(""), st.tuples(VALUES), st.booleans()),
)


@given(st.lists(TERMS, max_size=6))
def test_the_normal_form_means_the_same(terms: list[QueryTerm]) -> None:
    text = " ".join(map(str, terms))

    assert read_terms(text[:1000]) == terms if len(text) <= 1000 else True


@given(st.text(max_size=60))
def test_every_text_is_a_query_or_is_refused(text: str) -> None:
    try:
        query = parsed(text)
    except (ArgumentsError, UnicodeEncodeError):
        return
    again = parsed(str(query))
    assert str(again) == str(query)
    assert again.accepts(JOB) == query.accepts(JOB)


@given(VALUES, TEXTS, TEXTS)
def test_a_value_is_found_in_every_text_around_it(value: QueryValue, before: str, after: str) -> None:
    text = "x".join(value.parts) if value.has_star else value.parts[0]

    assert value.equals(text)
    assert (
        value.is_in(before + text + after)
        or (before + text + after).lower() != before.lower() + text.lower() + after.lower()
    )


@given(TERMS, st.sampled_from(STATES))
def test_a_negated_term_selects_the_other_jobs(term: QueryTerm, state: str) -> None:
    job = QueriedJob(JOB.id, JOB.queue, state, JOB.body, JOB.error, JOB.worker)  # type: ignore[arg-type]
    plain, negated = (
        JobQuery((QueryTerm(term.field, term.values),)),
        JobQuery((QueryTerm(term.field, term.values, True),)),
    )

    assert plain.accepts(job) != negated.accepts(job)


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


@given(
    arguments=st.dictionaries(st.text(max_size=5), VALUES | st.lists(VALUES, max_size=3), max_size=4),
    data=st.data(),
)
def test_the_quick_look_misses_no_value(arguments: dict[str, object], data: st.DataObject) -> None:
    """Words from anywhere in the texts of values, in either case, with or without a star."""
    encoded = msgspec.json.encode(arguments)
    for text in texts_in(msgspec.json.decode(encoded)):
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        word = data.draw(st.sampled_from([text, text.upper(), text.lower()]))[first:last]
        parts = data.draw(st.sampled_from([(word,), ("", word, ""), (word[:2], word[2:])]))
        value = QueryValue(parts)
        if value.is_in(text):
            assert value.may_be_in_json(encoded)


@pytest.mark.parametrize(
    ("word", "payload"),
    [
        ("kelvin", '{"unit": "\u212aelvin"}'),
        ('say "hi"', '{"text": "say \\"hi\\""}'),
        ("a/b", '{"path": "a\\/b"}'),
        ("1e+16", '{"size": 1e16}'),
        ("e-05", '{"size": 0.00001}'),
        ("zürich", '{"city": "Z\\u00fcrich"}'),
        ("whole", '"whole"'),
    ],
)
def test_a_value_is_found_however_json_writes_it(word: str, payload: str) -> None:
    value = QueryValue((word,))
    encoded = payload.encode()
    assert any(value.is_in(text) for text in texts_in(msgspec.json.decode(encoded)))
    assert value.may_be_in_json(encoded)


def test_a_quick_look_rules_most_jobs_out() -> None:
    assert not QueryValue(("nobody",)).may_be_in_json(JOB.body.payload)
    assert not QueryValue(("c-6", "nobody")).may_be_in_json(JOB.body.payload)
    assert QueryValue(("c-607",)).may_be_in_json(b'{"name": "C-607"}')
