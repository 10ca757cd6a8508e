"""A handler's coroutine, with something done around each of its steps and at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, cast


class Watch(ABC):
    """What is done around a handler."""

    __slots__ = ()

    @abstractmethod
    def step(self) -> AbstractContextManager[object]:
        """Return what is entered while the handler's own code runs."""

    @abstractmethod
    def ended(self, error: BaseException | None) -> None:
        """Hear that the handler is done, or what it raised. Called once."""


class Watched(Coroutine[Any, Any, Any]):
    """Runs a coroutine as it is, and tells a watch.

    No coroutine of our own that awaits it: one that is cancelled before its first step would
    leave the one inside never awaited, which Python warns of.
    """

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: Coroutine[Any, Any, Any], watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        """Return what to step through to its end: itself, which has all that a generator has."""
        return cast("Generator[Any, Any, Any]", self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    @property
    def cr_await(self) -> Coroutine[Any, Any, Any]:
        """What it awaits, under the name that coroutines have for it: for who looks on."""
        return self._inner

    def send(self, value: Any) -> Any:
        """Take a step."""
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
        """Take a step with an error, such as being cancelled."""
        try:
            with self._watch.step():
                return self._inner.throw(typ)
        except BaseException as error:
            self._ended(error)
            raise

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def _ended(self, error: BaseException) -> None:
        self._watch.ended(None if isinstance(error, StopIteration) else error)
