from __future__ import annotations

import pytest

from onward.actors import Node
from onward.actors.access import (
    Access,
    AccessControl,
    all_of,
    allow_all,
    any_of,
    deny_all,
    from_source,
    local_only,
    not_,
    to_next,
)
from onward.actors.access._controls import NoDecision, on_node
from onward.protocol import Address, Message, parse_route

A, B = Address(0, b"a"), Address(0, b"b")


def message(source: Address | None = A, onward: str = "x => y") -> Message:
    return Message(parse_route(onward), parse_route("a"), b"", source)


def short(message: Message) -> bool:
    return len(message.payload) < 10


def broken(message: Message) -> bool:
    raise ValueError(message.payload)


class Named:
    def __call__(self, message: Message) -> bool:
        return message.source is None

    def __repr__(self) -> str:
        return "<named>"


@pytest.mark.parametrize(
    ("control", "passes"),
    [
        (allow_all, True),
        (deny_all, False),
        (from_source("a"), True),
        (from_source("b", A), True),
        (from_source("b"), False),
        (from_source(), False),
        (to_next("x"), True),
        (to_next("y"), False),
        (not_(to_next("y")), True),
        (all_of(), True),
        (all_of(from_source("a"), to_next("x")), True),
        (all_of(from_source("a"), to_next("y")), False),
        (any_of(), False),
        (any_of(from_source("b"), to_next("x")), True),
        (any_of(from_source("b"), to_next("y")), False),
        (all_of(short, not_(deny_all)), True),
        (any_of(allow_all, broken), True),
        (all_of(deny_all, broken), False),
    ],
    ids=repr,
)
def test_decisions(control: AccessControl, passes: bool) -> None:
    assert control(message()) is passes


def test_a_message_without_a_source_is_from_no_worker() -> None:
    assert from_source("a")(message(None)) is False


@pytest.mark.parametrize(
    ("control", "text"),
    [
        (allow_all, "allow_all"),
        (deny_all, "deny_all"),
        (local_only, "local_only"),
        (from_source("b", "a"), "from_source(0#a, 0#b)"),
        (to_next("1#h:1"), "to_next(1#h:1)"),
        (not_(all_of(short, local_only)), "not_(all_of(short, local_only))"),
        (any_of(Named(), deny_all), "any_of(<named>, deny_all)"),
    ],
)
def test_shown(control: AccessControl, text: str) -> None:
    assert repr(control) == text


def test_equal_controls_are_equal() -> None:
    assert Access(all_of(from_source("a"), allow_all)) == Access(
        all_of(from_source("a"), allow_all)
    )
    assert Access() == Access(allow_all, allow_all)
    assert from_source("a") != to_next("a")


@pytest.mark.parametrize("combine", [not_, all_of, any_of])
def test_what_fails_inside_a_combination_fails_it(combine: AccessControl) -> None:
    control: AccessControl = combine(broken)  # type: ignore[arg-type, assignment]  # pyright: ignore[reportArgumentType, reportAssignmentType]
    with pytest.raises(ValueError, match=r"^b''$"):
        control(message())


@pytest.mark.parametrize("answer", [1, None, "yes"])
def test_only_true_and_false_are_decisions(answer: object) -> None:
    with pytest.raises(NoDecision, match=r"<lambda> returned .*, not True or False"):
        not_(lambda _: answer)(message())  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]


def test_a_coroutine_is_no_decision() -> None:
    async def later(_: Message) -> bool:
        return True

    with pytest.raises(NoDecision, match="later returned coroutine"):
        any_of(later)(message())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_local_only_knows_nobody_until_it_is_on_a_node() -> None:
    assert local_only(message(None)) is True
    assert local_only(message(A)) is False
    for control in (not_(local_only), not_(all_of(local_only)), not_(any_of(local_only))):
        assert on_node(control, Node().parts.table)(message(B)) is True
    assert on_node(short, Node().parts.table) is short
