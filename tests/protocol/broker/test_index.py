from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from onward.protocol.broker import (
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
from onward.protocol.broker._postings import HOME_KEY
from onward.protocol.broker._tags import OWN_ID, OWN_KEY
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


@pytest.mark.parametrize("own", [OWN_ID, (OWN_KEY, None)])
def test_the_own_id_of_a_route_is_one_of_its_tags(own: Tag) -> None:
    index = TagIndex()
    route_id = bytes(16)
    number = index.add((own, (6, "eu"), (HOME_KEY, "x")), route_id)
    assert index.ids == {route_id: number}
    assert index.tags(number) == ((2, format_id(route_id)), (6, "eu"))
    assert found(index, f"route={format_id(route_id)}") == [number]
    assert index.statistics().tags == 2
    index.remove(number)
    assert index.ids == {}
    assert index.statistics().tags == 0


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
