"""Results of requests: a code, and a detail for people.

```
result = [code, detail or null]
```
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ._checks import check_size
from ._errors import BadRecord
from ._record_reader import RecordReader

__all__ = ["MAX_DETAIL", "RESULT_OK", "Result", "ResultCode", "read_result", "result_items"]

MAX_DETAIL: Final = 200
"""Most bytes of the detail of a result, in UTF-8."""


class ResultCode(IntEnum):
    """The code of a result; the number is the one on the wire. As text, its name."""

    def __str__(self) -> str:
        return self.name

    OK = 0
    EXISTS = 1
    UNKNOWN = 2
    NOT_OWNER = 3
    ALREADY_SUBSCRIBED = 4
    NOT_SUBSCRIBED = 5
    SCOPE = 6
    BAD_ADVERT = 7
    REMOTE_FAILED = 8
    TIMEOUT = 9
    DENIED = 10
    OVERFLOW = 11


_CODES: Final = {int(each): each for each in ResultCode}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a request.

    Attributes:
        code: What came of it.
        detail: More about it, for people, of 1 to `MAX_DETAIL` bytes in UTF-8; `None` for nothing.

    Raises:
        BadRecord: The detail is empty, or over its limit.
    """

    code: ResultCode
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.detail is not None:
            check_size("the detail", self.detail.encode(), MAX_DETAIL, 1)


RESULT_OK: Final = Result(ResultCode.OK)
"""The result of a request that did what it asks for."""


def read_result(reader: RecordReader) -> Result:
    """Read a result.

    Raises:
        BadRecord: It is something else, or has a code that there is not.
    """
    reader.enter("the result", 2)
    number = reader.number("the code of the result")
    code = _CODES.get(number)
    if code is None:
        raise BadRecord(f"there is no code {number} of results")
    detail = None
    if not reader.is_null("the detail"):
        detail = reader.text("the detail", MAX_DETAIL, 1)
    reader.leave()
    return Result(code, detail)


def result_items(result: Result) -> tuple[object, ...]:
    """Return the items of a result, for `cbor2.dumps`."""
    return result.code, result.detail
