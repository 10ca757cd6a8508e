"""The errors about names, patterns and semantics."""

from __future__ import annotations

import pytest

from onward.protocol import ProtocolError
from onward.protocol.dispatch import (
    BadName,
    BadPattern,
    BadSemantics,
    DispatchError,
    PatternInUse,
    TooManyProvisions,
    UnknownProvision,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BadName("_local", "no text"), "bad name '_local': no text"),
        (BadName(b"\xff", "not UTF-8"), "bad name b'\\xff': not UTF-8"),
        (BadName("x" * 200, "too long"), f"bad name '{'x' * 79}…: too long"),
        (BadPattern("..", "no token"), "bad pattern '..': no token"),
        (PatternInUse("a/#", "a/#"), "bad pattern 'a/#': it is provisioned already"),
        (PatternInUse("a/#", "a.#"), "bad pattern 'a/#': it is provisioned already as 'a.#'"),
        (BadSemantics(["one", "two"]), "contradictory semantics: one; two"),
        (TooManyProvisions(1), "the limit of 1 provision is reached"),
        (TooManyProvisions(2), "the limit of 2 provisions is reached"),
        (UnknownProvision("a.b"), "there is no provision of the pattern 'a.b'"),
    ],
)
def test_texts(error: DispatchError, text: str) -> None:
    assert str(error) == text
    assert isinstance(error, ProtocolError)


def test_data() -> None:
    error = PatternInUse("a/#", "a.#")
    assert (error.text, error.other) == ("a/#", "a.#")
    assert BadSemantics(each for each in ("one", "two")).reasons == ("one", "two")
    assert TooManyProvisions(3).limit == 3
