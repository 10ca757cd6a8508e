"""The clock of a node, which may be wrong and be set right while the node runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["CLOCK_TOLERANCE", "ClockFollower", "ClockWatch"]

_logger: Final = logging.getLogger("onward.actors.identity")

CLOCK_TOLERANCE: Final = 5_000
"""Most time by which a clock may be set, in milliseconds, without more. Beyond: the node signs its
adverts anew and tells them, and its links begin anew. Below, what is sent to the node may be
refused as long as the clock was set back by."""


class ClockWatch:
    """A watch for steps of the clock of a node.

    A clock that is slewed, as by NTP, makes none: that of the loop is slewed with it. The time for
    which a machine sleeps is one, where the clock of the loop stands still meanwhile, as on Linux.
    A step that another one undoes before the next look is not seen.

    Args:
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        loop_time: Returns the time of a clock that is not set, in seconds.
    """

    __slots__ = ("_ahead", "_loop_time", "_milliseconds")

    def __init__(self, milliseconds: Callable[[], int], loop_time: Callable[[], float]) -> None:
        self._milliseconds: Final = milliseconds
        self._loop_time: Final = loop_time
        # What stands still between the two clocks makes it less.
        self._ahead = max(self._now_ahead(), self._now_ahead())

    def take_step(self) -> int:
        """Return by how much the clock was set since the last step, in milliseconds; 0 for little.

        Several little ones are one as well, once they are more than `CLOCK_TOLERANCE`.
        """
        ahead = self._now_ahead()
        step = ahead - self._ahead
        if abs(step) <= CLOCK_TOLERANCE:
            return 0
        if abs(self._now_ahead() - ahead) > CLOCK_TOLERANCE:
            return 0  # the process has stood still between the two clocks; the next look decides
        self._ahead = ahead
        return step

    def _now_ahead(self) -> int:
        return self._milliseconds() - int(self._loop_time() * 1000)


class ClockFollower:
    """The answer of a router to steps of the clock of its node.

    Args:
        router: The router.
    """

    __slots__ = ("_router", "_watch")

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        self._watch: Final = ClockWatch(router.milliseconds, router.loop_time)

    def follow(self) -> bool:
        """Sign all adverts anew and tell them if the clock was set; return whether it was.

        This node and the others then begin anew with each other, as if it was started again. If
        it was set back, ids of messages to this node and what it has asked for are of a time to
        come. If it was set forward, what an earlier start has accepted is later than this start.
        """
        step = self._watch.take_step()
        if not step:
            return False
        _logger.warning(
            "the clock was set by %+.1f s: adverts are signed anew",
            step / 1000,
            extra={"event": "identity.clock_set"},
        )
        router, is_back = self._router, step < 0
        greeted = [each.node for each in router.peers.sessions.values() if each.is_greeted]
        router.started = router.milliseconds() - 1
        router.incoming.clock_set(router.started, back=is_back)
        if is_back:
            router.greetings.clock_set_back()
        for node in greeted:
            router.node_lost(node, "the clock of this node was set")
        router.own_adverts.sign_anew()
        for session in tuple(router.peers.sessions.values()):
            router.greetings.greet(session)
        for part in router.parts:
            part.clock_set(back=is_back)
        for node in greeted:
            for part in router.parts:
                part.node_joined(node)
            router.awaited.found_at(node)
            if not is_back:
                # Its advert was of a time to come here, and others may not have it.
                router.lookups.ask_at(node, node)
        return True
