from __future__ import annotations

import pickle

import pytest

from onward import protocol
from onward.protocol import (
    AddressError,
    AddressInUse,
    BadPreamble,
    DeliveryError,
    EmptyRoute,
    FrameTooBig,
    InDoubt,
    LinkDown,
    LinkLost,
    MailboxFull,
    MalformedMessage,
    NodeStopped,
    NoRoute,
    NotDelivered,
    NotExposed,
    OnwardError,
    PayloadTooBig,
    ProtocolError,
    RequestTimeout,
    RouteTooLong,
    UnknownAddress,
    UnknownAddressType,
    WorkerFailed,
    WorkerStopped,
    address,
)

CASES: list[tuple[OnwardError, str]] = [
    (AddressError("x#y", "the type is wrong"), "bad address 'x#y': the type is wrong"),
    (EmptyRoute(), "the onward route is empty"),
    (RouteTooLong(65, 64), "a route of 65 addresses is over the limit of 64"),
    (PayloadTooBig(11, 10), "a payload of 11 bytes is over the limit of 10 bytes"),
    (BadPreamble(2), "the peer starts with 0x02, not with protocol version 0x01"),
    (FrameTooBig(11, 10), "a frame of 11 bytes is over the limit of 10 bytes"),
    (MalformedMessage("no payload"), "malformed message: no payload"),
    (DeliveryError(), "not delivered"),
    (NotDelivered("a"), "not delivered: a"),
    (UnknownAddress(address("a")), "no such worker: 0#a"),
    (UnknownAddressType("9#a"), "no rule for this type of address: 9#a"),
    (AddressInUse("a"), "address in use: a"),
    (MailboxFull("a", "1000 messages"), "mailbox full: a (1000 messages)"),
    (NotExposed("a"), "not exposed: a"),
    (NoRoute("service=a"), "no route: service=a"),
    (LinkDown("a", "refused"), "link down: a (refused)"),
    (NodeStopped(detail="by request"), "node stopped (by request)"),
    (InDoubt("a"), "in doubt: a"),
    (RequestTimeout("a", "30 s"), "no answer in time: a (30 s)"),
    (LinkLost("a"), "link lost: a"),
    (WorkerStopped("a"), "worker stopped: a"),
    (WorkerFailed("a"), "worker failed: a"),
]


@pytest.mark.parametrize(("error", "text"), CASES, ids=lambda value: type(value).__name__)
def test_text(error: OnwardError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(("error", "text"), CASES, ids=lambda value: type(value).__name__)
def test_an_error_crosses_processes(error: OnwardError, text: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == text
    assert vars(copy) == vars(error)


def test_the_tree() -> None:
    for error, _ in CASES:
        assert isinstance(error, (ProtocolError, DeliveryError))
    kinds = {getattr(protocol, name) for name in protocol.__all__}
    errors = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {type(error) for error, _ in CASES} <= errors
    for kind in errors:
        assert issubclass(kind, OnwardError)
        assert not (issubclass(kind, NotDelivered) and issubclass(kind, InDoubt))
    assert issubclass(ProtocolError, ValueError)
    assert issubclass(RequestTimeout, TimeoutError)


def test_a_delivery_error_says_what_it_was_for() -> None:
    error = UnknownAddress(address("a"), "stopped")
    assert (error.target, error.detail) == ("0#a", "stopped")
