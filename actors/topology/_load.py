"""Loading of topologies: the factories of a plan's workers, by kind or by a class of the user."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

from ...protocol import Address
from ...protocol.topology import (
    MailboxPlan,
    Problem,
    SupervisionPlan,
    TopologyError,
    TopologyLimits,
    TopologyPlan,
    TransportOptions,
    WorkerPlan,
    read_topology,
)
from .._worker import Worker
from ..runtime._cell import Factory
from ..runtime._policy import MailboxOptions, OnFailure, Overflow, Supervision
from ._kinds import KINDS, WorkerKind
from ._transport_options import transport_options

__all__ = ["Factories", "factories", "mailbox_of", "read", "supervision_of"]

_LIMITS: Final = TopologyLimits()

Factories = dict[tuple[str, Address], Factory]
"""The factories of the workers, by node and primary address."""


def read(
    text: str | bytes,
    file: str = "topology",
    *,
    kinds: Mapping[str, WorkerKind] = KINDS,
    transports: TransportOptions = transport_options,
    limits: TopologyLimits = _LIMITS,
) -> TopologyPlan:
    """Read a topology file, for the given kinds of workers and transports.

    Args:
        text: The text of the file; bytes are UTF-8.
        file: The name of the file in errors.
        kinds: The kinds of worker, by name; `{**KINDS, "mine": Kind(...)}` adds one.
        transports: Returns the options of a scheme's transport. By default the installed ones
            are used; see `Transport`.
        limits: The limits of the file.

    Raises:
        TopologyError: The file is not valid; the error names all the faults.
    """
    options = {name: kind.options for name, kind in kinds.items()}
    return read_topology(text, file, kinds=options, transports=transports, limits=limits)


def factories(
    plan: TopologyPlan,
    *,
    kinds: Mapping[str, WorkerKind] = KINDS,
    nodes: Iterable[str] | None = None,
) -> Factories:
    """Return the factories of a plan's workers; this imports their classes.

    Args:
        plan: The plan.
        kinds: The kinds of worker it was read with.
        nodes: The names of the nodes with the workers; all by default.

    Raises:
        TopologyError: A class cannot be imported, or does not take the options; the error names
            all the faults.
    """
    wanted = [node.name for node in plan.nodes] if nodes is None else nodes
    made: Factories = {}
    problems: list[Problem] = []
    for name in wanted:
        for worker in plan.node(name).workers:
            try:
                made[name, worker.address] = _factory(worker, kinds)
            except ValueError as error:
                key = "kind" if worker.kind else "class"
                place = worker.place
                problems.append(Problem(plan.file, place.line, f"{place.key}.{key}", str(error)))
    if problems:
        raise TopologyError(tuple(problems))
    return made


def _factory(worker: WorkerPlan, kinds: Mapping[str, WorkerKind]) -> Factory:
    make = kinds[worker.kind].make if worker.kind else _class(worker.class_path)
    if worker.options and getattr(make, "__init__", None) is Worker.__init__:
        # It accepts any keyword, and ignores it.
        raise ValueError("it takes no options")
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        # A compiled callable without a signature; the call will fail instead.
        return partial(make, **worker.options)
    try:
        signature.bind(**worker.options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise ValueError(f"{error}; it takes: {takes}") from None
    return partial(make, **worker.options)


def _class(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        # Importing runs the user's code, which may raise any exception.
        raise ValueError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    for step in name.split("."):
        try:
            found = getattr(found, step)
        except AttributeError as error:
            raise ValueError(str(error)) from error
    if not callable(found):
        raise ValueError(f"{path} cannot be called")  # noqa: TRY004 - of the file, not of a call
    return cast("Callable[..., Any]", found)


def mailbox_of(plan: MailboxPlan) -> MailboxOptions | None:
    """Return the mailbox options of a worker; `None` if the plan has none."""
    if plan == MailboxPlan():
        return None
    usual = MailboxOptions()
    overflow = plan.overflow and Overflow[plan.overflow.upper().replace("-", "_")]
    return MailboxOptions(plan.limit or usual.limit, overflow or usual.overflow)


def supervision_of(plan: SupervisionPlan) -> Supervision:
    """Return the supervision of a worker; values that the plan lacks are the defaults."""
    usual = Supervision()
    on_failure = plan.on_failure and OnFailure[plan.on_failure.upper()]
    return Supervision(
        on_failure or usual.on_failure,
        plan.max_restarts or usual.max_restarts,
        usual.within if plan.within is None else plan.within,
    )
