"""The decision whether a session is resumed, as a table, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..options import Count, Seconds, check_options
from ._constants import MAJOR_VERSION, MINOR_VERSION
from ._kept_frames import KeptFrames
from ._resume import Resume

__all__ = ["RESUME_RULES", "ResumeLimits", "ResumeRefusal", "refusal_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeLimits:
    """The limits of one session that can be resumed.

    Attributes:
        time: Seconds after the loss of its transport in which a session has to be resumed. Then it
            ends, and so do its streams.
        max_kept: Most bytes of sent frames that are kept until the peer has received them, with the
            cost of their objects. Over it the oldest are dropped. The session cannot be resumed
            then, unless the peer has received them after all.

    Raises:
        ValueError: A number is out of its range.
    """

    time: Seconds = 60.0
    max_kept: Count = 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)


class ResumeRefusal(Enum):
    """The reason for which a session is not resumed, as text for the peer."""

    UNKNOWN = "no such session"
    """There is no session of this peer with the token."""
    EXPIRED = "the credentials have expired"
    VERSION = "another version of the protocol"
    CLIENT_DROPPED = "the client has dropped frames that were not received"
    SERVER_DROPPED = "the server has dropped frames that were not received"
    NOT_SENT = "more is received than was sent"
    NO_BORDER = "the position is within a frame"


_R = ResumeRefusal

_VERSIONS: Final = ((MAJOR_VERSION, MINOR_VERSION), (MINOR_VERSION, MAJOR_VERSION))
"""The accepted versions. rsocket-js 1.0.0-alpha.3 writes its two numbers in reverse in RESUME."""

RESUME_RULES: Final[tuple[tuple[ResumeRefusal, Callable[[Resume, int, KeptFrames], bool]], ...]] = (
    # Assumptions: "A client is not allowed to change the metadata MIME type or the data MIME type
    # or version, etc. when resuming operation."
    (_R.VERSION, lambda resume, _, __: (resume.major, resume.minor) not in _VERSIONS),
    # Implied Position: "has the client retained all frames past the server's last-retained
    # position."
    (_R.CLIENT_DROPPED, lambda resume, received, _: resume.first_available > received),
    # Implied Position: "have all frames past the client's last-received position been retained?"
    (_R.SERVER_DROPPED, lambda resume, _, kept: resume.last_received < kept.first),
    # Resume Operation: "the server MAY send an ERROR[REJECTED_RESUME] frame if the server can not
    # resume operation given the value of RESUME Last Received Position if the position is not one
    # it deems valid to resume operation from".
    (_R.NOT_SENT, lambda resume, _, kept: resume.last_received > kept.end),
    (_R.NO_BORDER, lambda resume, _, kept: kept.since(resume.last_received) is None),
)
"""The reasons for a refusal by the positions, and when each applies: the first one counts.

A rule gets the RESUME, the position up to which the server has received, and the frames that it
keeps.
"""


def refusal_of(resume: Resume, received: int, kept: KeptFrames) -> ResumeRefusal | None:
    """Return why a session is not resumed, or `None` if it is.

    Args:
        resume: The RESUME.
        received: The position up to which the server has received.
        kept: The frames that the server keeps.
    """
    return next((each for each, applies in RESUME_RULES if applies(resume, received, kept)), None)
