"""The numbers of routes, and the postings of their tags."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onward.protocol.broker import (
    TagIndex,
    TagList,
    make_tags,
    parse_query,
)


def tags(text: str) -> TagList:
    return make_tags(dict(word.split("=") for word in text.split()))


def found(index: TagIndex, text: str) -> list[int]:
    return list(index.resolve(parse_query(text)))


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
