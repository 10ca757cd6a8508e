"""Chains of typed workers: their types are compared before any worker is started."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from ..protocol import OnwardError, Route
from ..protocol.options import check_value
from ._typed import UNKNOWN, TypedWorker, contract_of, members_of
from .runtime._policy import MailboxOptions, Overflow, Supervision

if TYPE_CHECKING:
    from ._node import Node
    from .runtime._cell import Factory

__all__ = ["ChainMismatch", "start_chain"]

_WAITS: Final = MailboxOptions(overflow=Overflow.WAIT)
_SUPERVISION: Final = Supervision()
_PLAIN: Final = (bool, bytes, float, int, str)


class ChainMismatch(OnwardError, TypeError):
    """A worker of a chain does not take the values that the one before it returns.

    Attributes:
        before: The handler that returns the value.
        after: The handler that should take it.
        detail: The difference.
    """

    def __init__(self, before: str, after: str, detail: str) -> None:
        super().__init__(before, after, detail)
        self.before = before
        self.after = after
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.before} and {self.after} do not fit: {self.detail}"


async def start_chain(
    node: Node,
    stages: Mapping[str, Factory],
    *,
    mailbox: MailboxOptions = _WAITS,
    supervision: Supervision = _SUPERVISION,
) -> Route:
    """Start typed workers, each of which takes the values that the one before it returns.

    ```python
    route = await start_chain(node, {"parse": parse, "price": price, "total": total})
    answer = await call(node, route, "2 tea", Total)
    ```

    The types of neighbours are compared first: dataclasses, `Struct`s, `str`, `bytes`, numbers,
    and unions of them. Other types, and stages that are made by a lambda, are only checked with
    each message, as all are.

    Args:
        node: The node.
        stages: The address and the class, or a `partial` of it, of each worker, in order.
        mailbox: The mailbox of each. By default senders wait for room, so that the chain is as
            slow as its slowest worker.
        supervision: The supervision of each.

    Returns:
        The route through all of them.

    Raises:
        ChainMismatch: Two neighbours do not fit; no worker was started.
        ValueError: There is no stage.
        AddressInUse: Another worker has one of the addresses. As after any error of a start,
            the workers started so far are stopped.
    """
    check_value("mailbox", mailbox, MailboxOptions)
    if not stages:
        raise ValueError("a chain needs a worker")
    _check(list(stages.values()))
    started: Route = ()
    try:
        for address, factory in stages.items():
            made = await node.start(
                factory, address=address, mailbox=mailbox, supervision=supervision
            )
            started = (*started, made)
    except BaseException:
        for each in reversed(started):
            await node.stop_worker(each)
        raise
    return started


def _check(stages: list[Factory]) -> None:
    owners = [_class_of(stage) for stage in stages]
    for before, after in pairwise(owners):
        if before is not None and after is not None:
            _check_pair(before, after)


def _class_of(factory: Any) -> type[TypedWorker] | None:
    while isinstance(factory, partial):
        factory = factory.func
    if isinstance(factory, type) and issubclass(factory, TypedWorker):
        return factory
    return None


def _check_pair(before: type[TypedWorker], after: type[TypedWorker]) -> None:
    gives, takes = contract_of(before), contract_of(after)
    returned, taken = members_of(gives.result), members_of(takes.kind)
    detail = ""
    if returned == {NoneType}:
        detail = "the first returns None, so that nothing is passed on"
    elif not all(_fits(each, taken) for each in returned - {NoneType}):
        detail = f"the first returns {_name(gives.result)}, the second takes {_name(takes.kind)}"
    elif before.codec.name != after.codec.name:
        detail = f"the first writes {before.codec.name}, the second reads {after.codec.name}"
    if detail:
        raise ChainMismatch(gives.name, takes.name, detail)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _fits(returned: Any, taken: set[Any]) -> bool:
    """Whether one of the types takes a value, as far as it can be told from the types."""
    if returned is UNKNOWN or not _is_comparable(returned):
        return True
    return any(
        not _is_comparable(each)
        or issubclass(returned, each)
        or (returned is int and each is float)
        for each in taken
    )


def _is_comparable(kind: Any) -> bool:
    record = dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__")
    return isinstance(kind, type) and (record or kind in _PLAIN)
