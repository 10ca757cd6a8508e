from __future__ import annotations

import dataclasses

import pytest

from onward.actors import MailboxOptions, NodeLimits, OnFailure, Overflow, Supervision


def test_defaults() -> None:
    assert MailboxOptions() == MailboxOptions(limit=1000, overflow=Overflow.FAIL)
    assert Supervision() == Supervision(OnFailure.RESUME, max_restarts=5, within=60.0)


def test_mailbox_that_can_take_nothing() -> None:
    with pytest.raises(
        ValueError, match=r"MailboxOptions\.limit must be a whole number of at least 1, not 0"
    ):
        MailboxOptions(limit=0)


@pytest.mark.parametrize("value", [MailboxOptions(), Supervision(), NodeLimits()])
def test_frozen(value: MailboxOptions | Supervision | NodeLimits) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, 1)


def test_every_limit_is_positive_and_documented() -> None:
    limits = NodeLimits()
    for field in dataclasses.fields(limits):
        assert getattr(limits, field.name) > 0
        assert f"        {field.name}: " in (NodeLimits.__doc__ or "")
