"""Which error has which exit status."""

from __future__ import annotations

import pytest

from onward.actors import UnknownScheme
from onward.cli._status import Status, status_of
from onward.protocol import (
    AddressError,
    EmptyRoute,
    LinkDown,
    LinkLost,
    NoRoute,
    OnwardError,
    PayloadTooBig,
    RequestTimeout,
    RouteTooLong,
    UnknownAddress,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownAddress("a"), Status.FAILED),
        (LinkDown("a"), Status.FAILED),
        (NoRoute("a"), Status.FAILED),
        (PayloadTooBig(2, 1), Status.FAILED),
        (RequestTimeout("a"), Status.IN_DOUBT),
        (LinkLost("a"), Status.IN_DOUBT),
        (AddressError("a", "bad"), Status.USAGE),
        (EmptyRoute(), Status.USAGE),
        (RouteTooLong(65, 64), Status.USAGE),
        (UnknownScheme("a:", ()), Status.USAGE),
    ],
)
def test_the_status_of_an_error(error: OnwardError, status: Status) -> None:
    assert status_of(error) is status
