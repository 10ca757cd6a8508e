"""The results of hooks and handlers: values, coroutines and other awaitables, and generators."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from typing import Any, TypeGuard

__all__ = ["coroutine_of", "is_coroutine", "is_generator"]


def is_coroutine(value: object) -> TypeGuard[Coroutine[Any, Any, Any]]:
    """Whether a handler returned a coroutine."""
    return isinstance(value, Coroutine)


def coroutine_of(value: object) -> Coroutine[Any, Any, Any] | None:
    """Return the result of a hook or a handler as a coroutine, if it can be awaited."""
    if is_coroutine(value):
        return value
    return _awaited(value) if _is_awaitable(value) else None


def is_generator(value: object) -> bool:
    """Whether the result is a generator, of which no code has run."""
    return not is_coroutine(value) and isinstance(value, Generator | AsyncGenerator)


def _is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    return isinstance(value, Awaitable)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
