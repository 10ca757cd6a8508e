"""The options of pipes refuse what lets nothing through."""

from __future__ import annotations

from dataclasses import fields

import pytest

from onward.protocol.pipes import MAX_WINDOW, Mode, Ordering, PipeOptions, PipeReceiverOptions


@pytest.mark.parametrize("kind", [PipeOptions, PipeReceiverOptions])
def test_no_limit_may_let_nothing_through(kind: type[PipeOptions | PipeReceiverOptions]) -> None:
    for field in fields(kind):
        if field.name not in ("ordering", "confirm"):
            with pytest.raises(ValueError, match=f"{field.name} must be"):
                kind(**{field.name: 0})  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="window must be a whole number from 1 to 65536, not 65537"
    ):
        kind(window=MAX_WINDOW + 1)


def test_a_mode_is_a_number_on_the_wire() -> None:
    modes = [Mode(ordering, confirm) for confirm in (False, True) for ordering in Ordering]
    assert [mode.number for mode in modes] == [0, 1, 2, 4, 5, 6]
    assert [Mode.of(mode.number) for mode in modes] == modes
    assert PipeOptions().mode == Mode(Ordering.STRICT, confirm=True)
    with pytest.raises(ValueError, match="3"):
        Mode.of(3)
