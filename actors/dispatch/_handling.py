"""What is left of a handler that is awaited, in the task of its worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Final, cast

from .._coroutines import is_coroutine

__all__ = ["Handling"]


class Handling(Coroutine[Any, Any, None]):
    """A coroutine that awaits what a handler has returned.

    It is no `async def` function: if that is cancelled before its first step, nothing of it runs.
    Python warns of what it would have awaited, and the delivery does not end.

    Args:
        inner: Awaits the result, and ends the delivery.
        result: What the handler has returned.
        never_begun: It is called if it is cancelled or closed before its first step.
    """

    __slots__ = ("_begun", "_inner", "_never_begun", "_result")

    def __init__(
        self,
        inner: Coroutine[Any, Any, None],
        result: Awaitable[object],
        never_begun: Callable[[], object],
    ) -> None:
        self._inner: Final = inner
        self._result: Final = result
        self._never_begun: Final = never_begun
        self._begun = False

    def __await__(self) -> Generator[Any, Any, None]:
        """Return the iterator of the steps: this object, which has a generator's methods."""
        return cast("Generator[Any, Any, None]", self)

    @property
    def cr_await(self) -> Coroutine[Any, Any, None]:
        """The awaited coroutine, under the usual name of this attribute, for inspection."""
        return self._inner

    def send(self, value: Any) -> Any:
        """Run the next step."""
        self._begun = True
        return self._inner.send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        """Run the next step with an exception, such as a cancellation."""
        self._skip()
        return self._inner.throw(typ)

    def close(self) -> None:
        """Close the coroutine."""
        self._skip()
        self._inner.close()

    def _skip(self) -> None:
        """Close the result of the handler, if it was not awaited yet."""
        if self._begun:
            return
        self._begun = True
        if is_coroutine(self._result):
            self._result.close()
        self._never_begun()
