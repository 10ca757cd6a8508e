"""Pipes that are broken on purpose: a harness that does not catch them shows nothing."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from onward.actors.pipes._receiving import ReceivingHalf
from onward.protocol import Address, Message, Route
from onward.protocol.pipes import (
    MAX_WINDOW,
    NO_EPOCH,
    Confirm,
    Frame,
    PipeFrameReader,
    PipeOpened,
    PipeReceiverOptions,
    Receiver,
    Sender,
    Unknown,
    encode_frame,
)
from tests.simulated.pipes import checked_run


class ForgetsDuplicates(Receiver):
    """Hands on again what comes again."""

    def _take(self, first: int, messages: tuple[Message, ...]) -> None:
        if first < self._next:
            self._add_ready(first, messages)
        super()._take(first, messages)


class ConfirmsTooSoon(Receiver):
    """Confirms the latest that has come, whatever is missing before it."""

    def _confirmation(self) -> Confirm:
        latest = max(self._held, default=self._next - 1)
        return Confirm(self.identity, self.epoch, latest)


class ConfirmsWhatItHolds(Receiver):
    """Confirms what has come in order, and is not handed on yet."""

    def _confirmation(self) -> Confirm:
        return Confirm(self.identity, self.epoch, self._next - 1)


class HoldsNothingBack(Receiver):
    """Hands on what comes when it comes."""

    def _hold(self, number: int, message: Message) -> None:
        self._early.add(number)
        self._add_ready(number, (message,))


class SaysItHasRoom(Receiver):
    """Tells the sender of a window that is larger than the one it keeps to."""

    def _open(self, now: float) -> None:
        super()._open(now)
        answer = PipeFrameReader().read(self._answers.pop())
        assert isinstance(answer, PipeOpened)
        self._answers.append(encode_frame(replace(answer, window=MAX_WINDOW)))


class HoldsAnyNumber(SaysItHasRoom):
    """Takes what is beyond its window."""

    def _fits(self, number: int, message: Message) -> bool:
        return True

    def _fits_all(self, messages: tuple[Message, ...]) -> bool:
        return True


class TakesBeyondAsReceived(SaysItHasRoom):
    """Drops what is beyond its window, and says that it has it."""

    def _fits(self, number: int, message: Message) -> bool:
        if number > self.done + self._options.window:
            self._early.add(number)
            return False
        return super()._fits(number, message)

    def _pass_gap(self) -> None:
        # Whoever holds back has nothing early: what is passed has to be forgotten here.
        self._early = {number for number in self._early if number >= self._next}
        if self._has_gap():
            super()._pass_gap()


class KnowsNoEpochs(Receiver):
    """Cannot be told from the receiver that was there before it."""

    def __init__(
        self, options: PipeReceiverOptions, identity: bytes, epoch: bytes, *more: Any
    ) -> None:
        super().__init__(options, identity, NO_EPOCH, *more)


class KnowsNoWindow(Sender):
    """Sends all it has."""

    def _cut(self, now: float) -> bool:
        self._window = self._window_bytes = 10**9
        return super()._cut(now)


class SendsDoubtAgain(Sender):
    """Sends through the next pipe what may have come out of the one before."""

    def _unknown(self) -> None:
        doubt = [message for segment in self._segments for message in segment.messages]
        super()._unknown()
        for message in doubt:
            self.send(message, 1)


class GivesUpAtOnce(ReceivingHalf):
    """Goes on without a message as soon as the worker it is for has no room."""

    __slots__ = ()

    def _gives_up(self, full: Address, progress: int) -> bool:
        return True


class NeverSaysUnknown(ReceivingHalf):
    """Does not tell a sender that nobody knows its pipe, neither when asked nor at a stop."""

    __slots__ = ()

    def _send(self, route: Route, frame: bytes) -> None:
        if not isinstance(PipeFrameReader().read(frame), Unknown):
            super()._send(route, frame)


def _no_answer(_: Frame) -> None:
    """Answer nothing to a frame of a pipe that nobody knows."""


_PLACES: Final[Mapping[type, str]] = {
    Receiver: "onward.actors.pipes._receiving.Receiver",
    ReceivingHalf: "onward.actors.pipes._receiver.ReceivingHalf",
    Sender: "onward.actors.pipes._sending.Sender",
}

BROKEN: Final[tuple[type[Receiver | ReceivingHalf | Sender], ...]] = (
    ForgetsDuplicates,
    ConfirmsTooSoon,
    ConfirmsWhatItHolds,
    HoldsNothingBack,
    HoldsAnyNumber,
    TakesBeyondAsReceived,
    KnowsNoEpochs,
    GivesUpAtOnce,
    NeverSaysUnknown,
    KnowsNoWindow,
    SendsDoubtAgain,
)
"""Each is one mistake in one end of a pipe."""


@contextmanager
def broken(kind: type[Receiver | ReceivingHalf | Sender]) -> Generator[None]:
    """Have all pipes made in the block be broken like this."""
    with ExitStack() as stack:
        for base, place in _PLACES.items():
            if base in kind.__mro__:
                stack.enter_context(mock.patch(place, kind))
        if kind is NeverSaysUnknown:
            stack.enter_context(
                mock.patch("onward.actors.pipes._service.answer_to_stranger", _no_answer)
            )
        yield


def catches(kind: type[Receiver | ReceivingHalf | Sender], seed: int) -> bool:
    """Tell whether a run shows that pipes are broken like this."""
    with broken(kind):
        return bool(checked_run(seed)[2])


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Do that for a pipe of `BROKEN`, by its number, and a seed."""
    kind, seed = job
    return kind, catches(BROKEN[kind], seed)
