from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from onward.protocol.broker import (
    MAX_CACHED_TAGS,
    Query,
    Tag,
    TagIndex,
    TagIndexStatistics,
    TagList,
    _index,
    format_id,
    make_tags,
    parse_query,
    tag_set,
)
from onward.protocol.broker._index import HOME_KEY, OWN_ID
from tests.support.counts import times

EMPTY: Query = frozenset()


def tags(text: str) -> TagList:
    return make_tags(dict(word.split("=") for word in text.split()))


def found(index: TagIndex, text: str) -> list[int]:
    return list(index.resolve(parse_query(text)))


def test_finds_the_routes_that_carry_all_tags() -> None:
    index = TagIndex()
    both = index.add(tags("service=orders region=eu zone=a"))
    one = index.add(tags("service=orders region=us zone=a"))
    index.add(tags("service=billing region=eu zone=a"))
    assert found(index, "service=orders") == [both, one]
    assert found(index, "service=orders region=eu") == [both]
    assert found(index, "service=orders region=eu zone=a") == [both]
    assert found(index, "service=orders region=eu zone=b") == []
    assert found(index, "service=orders colour=blue") == []


def test_two_frequent_tags_with_nothing_in_common() -> None:
    index = TagIndex()
    for _ in range(3):
        index.add(tags("service=orders zone=a"))
        index.add(tags("region=eu zone=a"))
    assert found(index, "service=orders region=eu zone=a") == []


def test_a_query_without_tags_finds_nothing() -> None:
    index = TagIndex()
    assert list(index.resolve(EMPTY)) == []
    index.add(tags("service=orders"))
    assert list(index.resolve(EMPTY)) == []


def test_null_and_empty_values_are_different_tags() -> None:
    index = TagIndex()
    null = index.add((("k", None),))
    empty = index.add((("k", ""),))
    assert found(index, "k") == [null]
    assert found(index, "k=") == [empty]


def test_one_key_may_have_several_values() -> None:
    index = TagIndex()
    number = index.add(((6, "eu"), (6, "us")))
    for text in ("region=eu", "region=us", "region=eu region=us"):
        assert found(index, text) == [number]


def test_a_route_without_tags_is_not_found() -> None:
    index = TagIndex()
    number = index.add(((0, "x"),))
    assert index.tags(number) == ()
    assert len(index) == 1
    index.remove(number)
    assert len(index) == 0


def test_other_tags_replace_the_old_ones_exactly() -> None:
    index = TagIndex()
    number = index.add(tags("service=orders region=eu"))
    other = index.add(tags("service=orders region=eu"))
    index.replace(number, tags("service=orders region=us"))
    assert found(index, "region=eu") == [other]
    assert found(index, "region=us") == [number]
    assert found(index, "service=orders") == [number, other]
    assert index.tags(number) == tags("service=orders region=us")


def test_nothing_is_left_of_a_removed_route() -> None:
    index = TagIndex()
    numbers = [index.add(tags(f"service=orders instance={name}")) for name in "abc"]
    assert index.statistics().tags == 4
    for number in numbers:
        index.remove(number)
    assert index.statistics() == TagIndexStatistics(
        routes=0,
        tags=0,
        numbers=3,
        cached_queries=0,
        cached_matches=0,
        computed=0,
        invalidated=0,
        evicted=0,
    )


def test_numbers_are_used_again() -> None:
    index = TagIndex()
    numbers = [index.add(tags(f"instance={name}")) for name in "abcd"]
    assert numbers == [0, 1, 2, 3]
    index.remove(1)
    index.remove(2)
    assert {index.add(tags("instance=e")), index.add(tags("instance=f"))} == {1, 2}
    assert index.add(tags("instance=g")) == 4
    assert index.statistics().numbers == 5
    assert found(index, "instance=b") == []


def test_routes_of_a_service_have_numbers_side_by_side() -> None:
    index = TagIndex()
    services = [tags("service=orders"), tags("service=stock"), tags("service=mail")]
    numbers: list[list[int]] = [[], [], []]
    for _ in range(1000):
        for each, service in zip(numbers, services, strict=True):
            each.append(index.add(service))
    for each in numbers:
        apart = sum(b != a + 1 for a, b in pairwise(each))
        assert apart < 19  # blocks of 1, 1, 2, 3 ... 337
    assert index.statistics().numbers < 1.5 * 3000


def test_numbers_that_a_smaller_service_leaves_go_to_others() -> None:
    index = TagIndex()
    for service in "abcde":
        numbers = [index.add(tags(f"service={service}")) for _ in range(100)]
        for number in numbers[1:]:
            index.remove(number)
    assert index.statistics().routes == 5
    assert index.statistics().numbers <= 2 * 104


@pytest.mark.parametrize("number", [-1, 1, 7])
def test_a_number_that_is_not_in_use(number: int) -> None:
    index = TagIndex()
    index.add(tags("instance=a"))
    gone = index.add(tags("instance=b"))
    index.remove(gone)
    with pytest.raises(KeyError):
        index.tags(number)
    with pytest.raises(KeyError):
        index.remove(number)
    with pytest.raises(KeyError):
        index.replace(number, ())
    assert found(index, "instance=a") == [0]
    assert len(index) == 1


def test_equal_tags_are_kept_once() -> None:
    index = TagIndex()
    numbers = [index.add(((1, f"orders-{len(name)}"), (3, name))) for name in "abc"]
    first, second, third = (index.tags(number)[0] for number in numbers)
    assert first is second is third


def test_all_routes_of_a_tag_are_hidden_at_once() -> None:
    index = TagIndex()
    for region in ("eu", "us", "eu"):
        index.add(tags(f"service=orders region={region}"))
    assert found(index, "service=orders") == [0, 1, 2]
    assert found(index, "service=stock") == found(index, "service=orders region=sa") == []
    index.hide_all((6, "eu"))
    assert found(index, "service=orders") == [1]
    assert index.statistics().hidden == 2
    index.hide_all((6, "sa"))
    index.remove(0)
    index.reveal_all((6, "eu"))
    assert found(index, "service=orders") == [1, 2]
    index.hide_all((6, "us"))
    assert found(index, "service=orders") == [2]
    assert found(index, "region=us") == []


def test_the_own_id_of_a_route_is_one_of_its_tags() -> None:
    index = TagIndex()
    route_id = bytes(16)
    number = index.add_known((OWN_ID, (6, "eu"), (HOME_KEY, "x")), route_id)
    assert index.ids == {route_id: number}
    assert index.tags(number) == ((2, format_id(route_id)), (6, "eu"))
    assert found(index, f"route={format_id(route_id)}") == [number]
    assert index.statistics().tags == 2
    index.remove(number)
    assert index.ids == {}
    assert index.statistics().tags == 0


# --- kept answers ---------------------------------------------------------------------------


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


# --- against a model ------------------------------------------------------------------------

SOME_TAGS: st.SearchStrategy[Tag] = st.tuples(
    st.sampled_from([1, 6, "k"]), st.sampled_from(["a", "b", "", None])
)
SOME_LISTS = st.lists(SOME_TAGS, max_size=5).map(tuple)
SOME_QUERIES = st.frozensets(SOME_TAGS, min_size=1, max_size=3)


def test_the_number_of_isolating_tags_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_index, "MAX_ISOLATING", 2)
    index = TagIndex()
    number = index.add(make_tags({"t": "a", "x": "1"}))
    for value in "abcab":
        index.isolate(tag_set(make_tags({"t": value})))
    assert list(index._isolating) == [("t", "a"), ("t", "b")]
    for query, found in (("t=a x=1", [number]), ("t=a x=2", []), ("t=b x=1", [])):
        assert list(index.resolve(parse_query(query))) == found


class AgainstModel(RuleBasedStateMachine):
    """Any sequence of changes and look-ups, with few enough tags to collide all the time."""

    numbers = Bundle("numbers")

    def __init__(self) -> None:
        super().__init__()
        # So small that answers are dropped by every limit.
        self.index = TagIndex(max_cached_queries=4, max_cached_matches=8)
        self.model: dict[int, frozenset[Tag]] = {}
        self.peak = 0

    @rule(target=numbers, tags=SOME_LISTS)
    def add(self, tags: TagList) -> int:
        number = self.index.add(tags)
        assert number not in self.model
        self.model[number] = tag_set(tags)
        self.peak = max(self.peak, len(self.model))
        return number

    @rule(number=numbers, tags=SOME_LISTS)
    def replace(self, number: int, tags: TagList) -> None:
        self.index.replace(number, tags)
        self.model[number] = tag_set(tags)

    @rule(number=consumes(numbers))
    def remove(self, number: int) -> None:
        self.index.remove(number)
        del self.model[number]

    @rule(query=SOME_QUERIES)
    def isolate(self, query: Query) -> None:
        self.index.isolate(query)

    @rule(query=SOME_QUERIES)
    def resolve(self, query: Query) -> None:
        assert list(self.index.resolve(query)) == self.naive(query)

    def naive(self, query: Query) -> list[int]:
        return sorted(number for number, tags in self.model.items() if query <= tags)

    @invariant()
    def keeps_what_is_right_and_within_limits(self) -> None:
        index = self.index
        kept = [index.answers.get(query) for query in list(index.answers)]
        answers = [answer for answer in kept if answer is not None]
        for answer in answers:
            assert list(answer.matches) == self.naive(answer.query)
        statistics = index.statistics()
        assert statistics.routes == len(index) == len(self.model)
        assert statistics.numbers <= 2 * self.peak
        assert statistics.tags == len({tag for tags in self.model.values() for tag in tags})
        assert statistics.cached_queries == len(answers) <= 4
        assert statistics.cached_matches == sum(len(a.matches) for a in answers) <= 8
        assert sum(map(len, index._watched.values())) == len(answers)
        for number, tags in self.model.items():
            assert tag_set(index.tags(number)) == tags


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(
    max_examples=times(15, 60), stateful_step_count=30, deadline=None
)
