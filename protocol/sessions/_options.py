"""How often a session asks whether the other end is there, and how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import Count, Probability, Seconds, check_options

__all__ = ["LivenessOptions"]


@dataclass(frozen=True, slots=True)
class LivenessOptions:
    """The times of a session, or of anything else that is pinged and replaced.

    Attributes:
        ping_interval: From one ping to the next, in seconds.
        max_unanswered: Pings in a row that may go unanswered; then the route is down.
        open_timeout: Longest time of one attempt, in seconds.
        retry: Wait after the first attempt that failed, in seconds; it doubles with each.
        longest_retry: The longest such wait, in seconds.
        jitter: The random part of a wait, from 0 (none) to 1 (up to twice or down to nothing).
        forget_after: Time without a word after which the accepting end forgets a session, in
            seconds.
        close_interval: How long to wait for the other end to confirm a close, in seconds, before
            it is told again.
        close_attempts: How often it is told.

    Raises:
        ValueError: A time is not more than 0 or has no end, a number is less than 1, or the
            jitter is not from 0 to 1.
    """

    ping_interval: Seconds = 10.0
    max_unanswered: Count = 3
    open_timeout: Seconds = 10.0
    retry: Seconds = 5.0
    longest_retry: Seconds = 60.0
    jitter: Probability = 0.2
    forget_after: Seconds = 120.0
    close_interval: Seconds = 1.0
    close_attempts: Count = 3

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def silence(self) -> float:
        """Longest silence before the route is down, in seconds."""
        return self.ping_interval * (self.max_unanswered + 1)
