"""Answers are kept until a change of the table makes them invalid."""

from __future__ import annotations

import pytest

from onward.protocol.broker import (
    MAX_CACHED_TAGS,
    TagIndex,
    TagList,
    make_tags,
    parse_query,
)


def tags(text: str) -> TagList:
    return make_tags(dict(word.split("=") for word in text.split()))


def found(index: TagIndex, text: str) -> list[int]:
    return list(index.resolve(parse_query(text)))


def test_a_repeated_query_is_not_computed_again() -> None:
    index = TagIndex()
    index.add(tags("service=orders region=eu"))
    first = index.resolve(parse_query("service=orders region=eu"))
    assert index.resolve(parse_query("region=eu service=orders")) is first
    assert index.statistics().computed == 1
    assert index.answers.get(parse_query("service=orders region=eu")) is not None
    assert index.answers.get(parse_query("service=orders")) is None


@pytest.mark.parametrize(
    "query",
    [
        "service=orders",
        "service=orders region=eu",
        "service=orders region=eu instance=a",
        "instance=a",
        "service=orders instance=a",
    ],
)
def test_a_change_that_matters_drops_the_answer(query: str) -> None:
    index = TagIndex()
    mine = tags("service=orders region=eu instance=a")
    index.add(tags("service=orders region=eu instance=b"))
    before = found(index, query)
    number = index.add(mine)
    assert found(index, query) == [*before, number]
    index.replace(number, tags("service=billing"))
    assert found(index, query) == before
    index.replace(number, mine)
    assert found(index, query) == [*before, number]
    index.remove(number)
    assert found(index, query) == before
    assert index.statistics().invalidated == 4


@pytest.mark.parametrize(
    "other",
    [
        "service=billing region=us",
        "service=billing region=eu",
        "service=orders region=us",
        "region=eu",
        "colour=blue",
    ],
)
def test_a_change_that_does_not_matter_drops_nothing(other: str) -> None:
    index = TagIndex()
    for name in "abc":
        index.add(tags(f"service=orders region=eu instance={name}"))
    answer = index.answer(parse_query("service=orders region=eu"))
    number = index.add(tags(other))
    index.replace(number, tags(f"{other} zone=a"))
    index.remove(number)
    assert index.answers.get(answer.query) is answer
    assert index.statistics().invalidated == 0


def test_an_answer_of_nothing_is_kept_until_there_is_something() -> None:
    index = TagIndex()
    query = parse_query("service=orders region=eu")
    assert list(index.resolve(query)) == []
    index.add(tags("service=orders region=us"))
    assert list(index.resolve(query)) == []
    assert index.statistics().computed == 1
    number = index.add(tags("service=orders region=eu"))
    assert list(index.resolve(query)) == [number]
    assert index.statistics().computed == 2


def test_an_answer_is_a_snapshot() -> None:
    index = TagIndex()
    numbers = [index.add(tags("service=orders region=eu")) for _ in range(3)]
    answers = [
        index.resolve(parse_query(text)) for text in ("service=orders", "service=orders region=eu")
    ]
    index.remove(numbers[0])
    assert [list(answer) for answer in answers] == [numbers, numbers]


def test_the_number_of_kept_answers_is_limited() -> None:
    index = TagIndex(max_cached_queries=2)
    for name in "abc":
        index.add(tags(f"instance={name}"))
        found(index, f"instance={name}")
    statistics = index.statistics()
    assert (statistics.cached_queries, statistics.evicted) == (2, 1)
    assert index.answers.get(parse_query("instance=a")) is None
    assert index.answers.get(parse_query("instance=b")) is not None
    index.remove(0)
    assert index.statistics().invalidated == 0


def test_the_size_of_kept_answers_is_limited() -> None:
    index = TagIndex(max_cached_matches=5)
    for number in range(6):
        index.add(tags(f"service=orders region={'eu' if number < 3 else 'us'} instance={number}"))
    assert len(found(index, "service=orders")) == 6
    assert index.statistics().cached_queries == 0
    found(index, "region=eu")
    found(index, "instance=0")
    assert index.statistics().cached_matches == 4
    found(index, "region=us")
    statistics = index.statistics()
    assert (statistics.cached_matches, statistics.cached_queries) == (4, 2)
    assert statistics.evicted == 1


def test_no_answers_are_kept_at_limit_zero() -> None:
    index = TagIndex(max_cached_queries=0)
    index.add(tags("service=orders"))
    assert found(index, "service=orders") == found(index, "service=orders") == [0]
    assert index.statistics().cached_queries == 0


def test_answers_to_long_queries_are_not_kept() -> None:
    index = TagIndex()
    words = [f"k{number}=v" for number in range(MAX_CACHED_TAGS + 1)]
    number = index.add(tags(" ".join(words)))
    assert found(index, " ".join(words)) == [number]
    assert index.statistics().cached_queries == 0
    assert found(index, " ".join(words[1:])) == [number]
    assert index.statistics().cached_queries == 1


def test_an_evicted_answer_is_no_longer_watched() -> None:
    index = TagIndex(max_cached_queries=1)
    for number in range(100):
        found(index, f"service=orders zone={number}")
    index.add(tags("service=orders zone=5"))
    statistics = index.statistics()
    assert (statistics.cached_queries, statistics.invalidated) == (1, 0)
    assert statistics.evicted == 99
