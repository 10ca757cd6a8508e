"""What a node relays for others, and the relays by which it is reached itself."""

from __future__ import annotations

from collections.abc import Callable

from ...actors.identity import IdentityKeys, PassedOn, RelayStatistics
from ...protocol.identity import Identity, Reservation, ReservationRequest
from ._own_identity import OwnIdentity

__all__ = ["RelayCalls"]


class RelayCalls(OwnIdentity):
    """A node that relays, or reserves at relays; see `Identities`."""

    @property
    def sealing_key(self) -> bytes:
        """The public key that others seal to for this node, which its advert has."""
        return self._relays.sealing.public

    def reload(self, keys: IdentityKeys) -> bool:
        """Use the sealing key of a key file that was rotated.

        The key before opens what is under way for ten minutes more.

        Args:
            keys: The keys, as of `load_key_file`.

        Returns:
            Whether it is another one than before.

        Raises:
            ValueError: The keys are of another identity.
        """
        return self._relays.rotate(keys)

    async def reserve(
        self,
        relay: Identity,
        *,
        duration: int = 3600,
        size: int = 64 * 1024 * 1024,
        messages: int = 65_536,
    ) -> Reservation:
        """Reserve at a relay, so that others reach this node through it.

        It is asked for again at half of its time, and when the link to the relay is back, until
        `release`. While it lasts the advert of the node says so.

        Args:
            relay: The relay, which there is a link to.
            duration: Its time, in seconds.
            size: The bytes that may be relayed to this node, and of its answers, in bytes.
            messages: The messages that may be relayed to this node, and its answers.

        Returns:
            What the relay gives, which may be less.

        Raises:
            RelayRefused: The relay refuses, or does not answer in 10 seconds.
            LinkDown: There is no link to it, or it has ended.
            LimitReached: There are reservations at 8 relays.
            BadRecord: A number is out of its range.
        """
        request = ReservationRequest(duration, size, messages)
        return await self._relays.reserved.reserve(relay, request)

    def release(self, relay: Identity) -> bool:
        """Reserve at a relay no more; return whether there was a reservation.

        The one that there is ends at its time, or with the link.
        """
        return self._relays.reserved.release(relay)

    def reserved_at(self) -> tuple[Identity, ...]:
        """Return the relays at which this node has a reservation now."""
        return self._relays.reserved.relays()

    def watch_relay(self, on_passed: Callable[[PassedOn], object]) -> Callable[[], None]:
        """Call a function for all that this node passes on as a relay, with what it can see of it.

        It is called once a link has taken it, so not for what is held, nor for what is dropped
        before. The link may end before it has sent it: that is a reason in `refused`.

        Args:
            on_passed: Receives each. It neither waits nor raises.

        Returns:
            A function that ends it.
        """
        watchers = self._relays.service.queues.on_passed
        watchers.append(on_passed)
        return lambda: watchers.remove(on_passed)

    def relay_statistics(self) -> RelayStatistics:
        """Return what this node has relayed, and what it holds for that."""
        return self._relays.statistics()
