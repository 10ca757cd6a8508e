"""Options of the router of identities: plain values, each with a name, a unit and a default."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.identity import MAX_RING_BYTES, CreatorEnd
from ...protocol.options import Count, Seconds, check_options

__all__ = ["IdentityOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """Options of the router of identities.

    Attributes:
        message_time: Time after which a message to another node is worth nothing, in seconds, if
            it has no deadline of its own: at most 600. The node that it comes to refuses it then.
        max_engines: Workers of the node that are engines. Beyond: a further one raises
            `LimitReached`.
        max_correspondents: Identities of other nodes that messages are exchanged with at a time.
            Beyond: the one that was used longest ago is let go, with the return routes to it.
        max_peers: Nodes that there are links to, those included that have not proved their key.
            Beyond: a further link is refused.
        handshake_time: Time in which a node has to prove its key, in seconds. Then the link ends.
        max_parked: Messages to one destination that wait until it is known where it is. Beyond: a
            further one is refused. They wait as long as `NodeLimits.pending_timeout`.
        max_topics: Topics that are created here, or that another node publishes and engines here
            are subscribed to. Beyond: a further one is refused as `OVERFLOW`.
        max_subscribers: Engines here that are subscribed to one topic. Beyond: the same.
        topic_bytes: Bytes of events of one topic that are kept to send them to other nodes again,
            at most 256 events. Beyond: the oldest goes, and a node that misses it is told.
        creator_end: What becomes of a topic when the engine that created it ends.
        anonymous: Whether relays are not to learn which node has sent what goes over them: each
            layer is signed by a key for one use. Relays that allow by source refuse those.
        tells_wishes: Whether each relay reads, in its layer, that a message need not be ordered or
            is not to wait, so that the relay does not hold it. By default what a message asks
            stands inside, unseen. A layer with wishes is longer by a few bytes, and by both relays
            that know each other find the message more easily: not with `anonymous`.
        dials: The schemes of the addresses in adverts of nodes that this node opens links to for
            its messages, such as `("tcp",)`. An advert is signed by its node, which can name any
            host, so by default there are none.
        padding: Whether each record to another node is filled to 1, 2, 4 … 64 KiB, and beyond that
            to a multiple of 64 KiB, so that its size on a link says little about it.

    Raises:
        ValueError: A value is out of its range.
    """

    message_time: Seconds = 60.0
    max_engines: Count = 10_000
    max_correspondents: Count = 10_000
    max_peers: Count = 1_000
    handshake_time: Seconds = 10.0
    max_parked: Count = 64
    max_topics: Count = 4096
    max_subscribers: Count = 10_000
    topic_bytes: Count = MAX_RING_BYTES
    creator_end: CreatorEnd = CreatorEnd.DELETE
    anonymous: bool = False
    tells_wishes: bool = False
    dials: tuple[str, ...] = ()
    padding: bool = False

    def __post_init__(self) -> None:
        check_options(self)
        if self.message_time > _MAX_TIME:
            raise ValueError(
                f"message_time is at most {_MAX_TIME:g} seconds, not {self.message_time}"
            )
        if self.anonymous and self.tells_wishes:
            raise ValueError("tells_wishes shows relays more of a message: not with anonymous")


_MAX_TIME = 600.0
