"""The error of a destination.

The module is not compiled, so that classes can be derived from the error.
"""

from __future__ import annotations

from typing import Final

from ...protocol import OnwardError
from ...protocol.rsocket import ErrorCode

__all__ = ["BROKE_PROTOCOL", "DestinationError"]

BROKE_PROTOCOL: Final = "the destination broke the protocol"
"""Why a stream ends at the other side when its peer sends what it may not."""


class DestinationError(OnwardError):
    """An error with which a destination answered a request.

    Attributes:
        code: Its RSocket error code; numbers from 0x301 on are the destination's own.
        text: Its text.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        try:
            name = ErrorCode(self.code).name
        except ValueError:
            name = f"0x{self.code:x}"
        return f"{name}: {self.text}"
