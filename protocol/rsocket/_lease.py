"""The requests that one side of a connection allows the other by LEASE frames ("Lease Semantics").

One such budget is what a peer allows us, another what we allow it: the rules are the same. A
budget knows no clock. All times are in seconds, of any one monotonic clock.
"""

from __future__ import annotations

from ._constants import MAX_REQUEST_N

__all__ = ["LeaseBudget"]


class LeaseBudget:
    """The requests that may still be made under the newest lease.

    Before the first lease none may be made. A new lease replaces what is left of the one before
    it, so a lease of no requests, or of no time, withdraws it.

    Attributes:
        granted: Requests the newest lease allows, used or not.
        expires: When it ends, in seconds; from then on nothing is left of it.
    """

    __slots__ = ("_left", "expires", "granted")

    def __init__(self) -> None:
        self.granted = 0
        self.expires = 0.0
        self._left = 0

    def grant(self, ttl_seconds: float, requests: int, now: float) -> None:
        """Start a lease.

        Args:
            ttl_seconds: For how long it holds; 0: not at all.
            requests: Number of requests it allows; 0: none.
            now: The time at which the LEASE frame came, or is sent.

        Raises:
            ValueError: A number is less than 0, or more requests than a frame can say. What
                was granted before still holds.
        """
        if not ttl_seconds >= 0:
            raise ValueError(f"a lease holds for 0 seconds or more, not {ttl_seconds}")
        if not 0 <= requests <= MAX_REQUEST_N:
            raise ValueError(f"a lease allows 0 to {MAX_REQUEST_N} requests, not {requests}")
        # LEASE Frame: "The last received LEASE frame overrides all previous LEASE frame values."
        self.granted = self._left = requests
        self.expires = now + ttl_seconds

    def available(self, now: float) -> int:
        """Return how many requests may be made at this time."""
        # LEASE Frame: "When a LEASE expires due to time, the value of the Number of Requests that a
        # Requester may make is implicitly 0."
        return self._left if now < self.expires else 0

    def take(self, now: float) -> bool:
        """Use the lease for one request, and say whether it allows it."""
        # Lease Semantics: "The Requester MUST NOT send more than Number of Requests specified in
        # the LEASE frame within the Time-To-Live value in the LEASE."
        if not self._left or now >= self.expires:
            return False
        self._left -= 1
        return True
