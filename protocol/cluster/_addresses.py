"""The addresses of other brokers, and when each is dialled."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from .._pattern import uri_matcher
from ._info import PeerInfo
from ._limits import ClusterLimits

__all__: list[str] = []

_FURTHEST: Final = 32
"""Doublings of the wait for a retry; it has reached the longest long before."""


@dataclass(slots=True)
class Address:
    """An address that may be dialled.

    Attributes:
        at: When it may be dialled next, in seconds of the caller's clock.
        broker_id: The broker that was found there, or is said to be there; `None` for a seed that
            was never reached.
        dialling: Whether an attempt is under way.
        failures: Number of attempts that have failed since the last success.
        cause: The reason of the last failure; empty after a success.
        paused_until: Time before which it is not dialled, whatever `at` says.
    """

    at: float
    broker_id: bytes | None = None
    dialling: bool = False
    failures: int = 0
    cause: str = ""
    paused_until: float = -inf


class AddressBook:
    """The addresses that one broker may dial: seeds, and what others say if it is allowed.

    Args:
        own: The facts of this broker; it does not dial itself. They may be replaced.
        allowed: See `Membership`.
        limits: The times between attempts.
        random: Gives a number from 0 up to 1.

    Attributes:
        dialling: Number of attempts under way, counted as they begin and end: there may be
            thousands of addresses.
    """

    def __init__(
        self,
        own: PeerInfo,
        allowed: Sequence[str],
        limits: ClusterLimits,
        random: Callable[[], float],
    ) -> None:
        self.own = own
        self.dialling = 0
        self._allowed = [uri_matcher(pattern) for pattern in allowed]
        self._limits = limits
        self._random = random
        self._seeds: tuple[str, ...] = ()
        self._addresses: dict[str, Address] = {}
        # The addresses of each broker: there may be thousands of brokers.
        self._of: dict[bytes, dict[str, Address]] = {}

    def get(self, uri: str) -> Address | None:
        """Return what is known of an address."""
        return self._addresses.get(uri)

    def replace_seeds(self, seeds: Sequence[str], now: float) -> None:
        """Replace the seeds."""
        before, self._seeds = self._seeds, tuple(dict.fromkeys(seeds))
        for uri in before:
            self.drop(uri)  # unless it is one still
        for uri in self._seeds:
            self._addresses.setdefault(uri, Address(now))

    def replace_allowed(self, allowed: Sequence[str]) -> None:
        """Replace the patterns of addresses that may be dialled."""
        self._allowed = [uri_matcher(pattern) for pattern in allowed]

    def unreached(self) -> Iterator[tuple[str, str]]:
        """Yield the addresses at which no broker was found, with the cause of the last failure."""
        for uri, address in self._addresses.items():
            if address.broker_id is None and uri != self.own.cluster_uri:
                yield uri, address.cause

    def add(self, info: PeerInfo, now: float, *, linked: bool) -> None:
        """Remember the address of a broker, if it may be dialled, in place of an earlier one.

        Args:
            info: The facts of the broker.
            now: The time.
            linked: Whether the broker itself says so, and not another one.
        """
        uri, broker_id = info.cluster_uri, info.broker_id
        address = self._addresses.get(uri)
        if address is not None:
            if linked:
                self._assign(uri, address, broker_id)
        elif uri and self._may_dial(uri):
            # It learns of this broker at the same moment, as a rule.
            wait = self._limits.retry if broker_id < self.own.broker_id else 0.0
            address = self._addresses[uri] = Address(now + wait)
            self._assign(uri, address, broker_id)
        for other in list(self._of.get(broker_id, ())):
            if other != uri:
                self.drop(other)

    def _may_dial(self, uri: str) -> bool:
        return any(matches(uri) for matches in self._allowed)

    def drop(self, uri: str) -> None:
        """Forget an address, unless it is a seed."""
        if uri not in self._seeds and uri in self._addresses:
            address = self._addresses.pop(uri)
            self._ended(address)
            self._assign(uri, address, None)

    def _assign(self, uri: str, address: Address, broker_id: bytes | None) -> None:
        """Set which broker is at an address."""
        before = address.broker_id
        if before is not None:
            del self._of[before][uri]
            if not self._of[before]:
                del self._of[before]
        address.broker_id = broker_id
        if broker_id is not None:
            self._of.setdefault(broker_id, {})[uri] = address

    def _at(self, broker_id: bytes) -> Iterable[Address]:
        """Return the addresses of a broker."""
        return self._of.get(broker_id, {}).values()

    # --- attempts -----------------------------------------------------------------------------

    def dialable(
        self, linked: Container[bytes], others: Container[bytes]
    ) -> Iterator[tuple[str, float]]:
        """Yield the addresses of brokers that there is no link with, and when to dial each.

        Args:
            linked: The brokers that there is a link with.
            others: Further brokers that are not meant.
        """
        own = self.own
        for uri, address in self._addresses.items():
            broker_id = address.broker_id
            if broker_id is not None and (
                broker_id in linked or broker_id in others or broker_id == own.broker_id
            ):
                continue
            if not address.dialling and uri != own.cluster_uri:
                yield uri, max(address.at, address.paused_until)

    def dial(self, uri: str) -> None:
        """Begin an attempt."""
        address = self._addresses[uri]
        self._ended(address)
        address.dialling = True
        self.dialling += 1

    def _ended(self, address: Address) -> None:
        """Count an attempt as ended, if there is one."""
        self.dialling -= address.dialling
        address.dialling = False

    def reached(self, uri: str, broker_id: bytes, now: float) -> None:
        """Receive the success of an attempt."""
        address = self._addresses.get(uri)
        if address is None:
            return  # the address of a seed that is none any longer
        self._ended(address)
        self._assign(uri, address, broker_id)
        address.failures, address.cause = 0, ""
        # For a link that is refused.
        address.at = now + self._wait(1, broker_id)

    def failed(self, uri: str, cause: str, now: float) -> None:
        """Receive the failure of an attempt."""
        address = self._addresses.get(uri)
        if address is None or not address.dialling:
            return
        self._ended(address)
        address.failures += 1
        address.cause = cause
        address.at = now + self._wait(address.failures, address.broker_id)

    def lost(self, broker_id: bytes, now: float) -> None:
        """Receive the loss of the link with a broker."""
        for address in self._at(broker_id):
            address.at = now + self._wait(1, broker_id)

    def hasten(self, broker_id: bytes, now: float) -> None:
        """Dial a broker soon, however often that has failed."""
        for address in self._at(broker_id):
            address.at = min(address.at, now + self._wait(1, broker_id))

    def pause(self, broker_id: bytes, until: float) -> None:
        """Dial a broker no more until a time."""
        for address in self._at(broker_id):
            address.paused_until = until

    def _wait(self, attempt: int, broker_id: bytes | None) -> float:
        limits = self._limits
        doubled = limits.retry * 2.0 ** min(attempt - 1, _FURTHEST)
        spread = 1 + limits.jitter * (2 * self._random() - 1)
        wait = min(doubled, max(limits.longest_retry, limits.retry)) * spread
        # Both brokers dial when a link is lost, and one of the two links would be closed. So the
        # one with the greater id waits longer.
        later = broker_id is not None and broker_id < self.own.broker_id
        return wait + limits.retry if later else wait
