"""A wrapper of a handler's coroutine, with a hook around each step and at the end."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ._instrument import Watch

__all__ = ["Watched"]


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine that runs another one and calls the hooks of a watch.

    It is no `async def` function: if that is cancelled before its first step, the inner coroutine
    is never awaited, and Python warns of that.
    """

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: Coroutine[Any, Any, Any], watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        """Return the iterator of the steps: this object, which has a generator's methods."""
        return cast("Generator[Any, Any, Any]", self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    @property
    def cr_await(self) -> Coroutine[Any, Any, Any]:
        """The awaited coroutine, under the usual name of this attribute, for inspection."""
        return self._inner

    def send(self, value: Any) -> Any:
        """Run the next step."""
        try:
            with self._watch.step():
                return self._inner.send(value)
        except BaseException as error:
            self._ended(error)
            raise

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        """Run the next step with an exception, such as a cancellation."""
        try:
            with self._watch.step():
                return self._inner.throw(typ)
        except BaseException as error:
            self._ended(error)
            raise

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def _ended(self, error: BaseException) -> None:
        self._watch.ended(None if isinstance(error, StopIteration) else error)
