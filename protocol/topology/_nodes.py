"""Reading `[nodes.NAME]`: a node, its workers and its listeners."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ..toml import FileTable, suggestion
from . import _values as values
from ._brokers import read_broker
from ._dispatchers import read_dispatcher
from ._identities import read_identity
from ._kinds import KindOptions
from ._options import TransportOptions, read_options, read_transport_options
from ._plan import ListenerPlan, MailboxPlan, NodePlan, SupervisionPlan, WorkerPlan

__all__ = ["check_node", "read_node"]

OVERFLOWS: Final = ("fail", "wait", "drop-oldest", "drop-newest")
ON_FAILURE: Final = ("resume", "restart", "stop", "escalate")

_CLASS: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def read_node(
    nodes: FileTable,
    name: str,
    kinds: Mapping[str, KindOptions],
    transports: TransportOptions,
    file: str,
) -> NodePlan:
    """Read one node."""
    _check_name(nodes, name)
    table = nodes.table(name)
    workers = table.table("workers")
    listeners = table.table("listeners")
    plan = NodePlan(
        place=table.place,
        name=name,
        workers=tuple(
            worker
            for key in workers.keys()  # noqa: SIM118
            if (worker := _worker(workers, key, kinds)) is not None
        ),
        listeners=tuple(
            _listener(listeners, key, name, transports)
            for key in listeners.keys()  # noqa: SIM118
        ),
        error_replies=table.take("error_replies", values.flag, False),
        broker=read_broker(table),
        dispatcher=read_dispatcher(table, file, name),
        identity=read_identity(table),
    )
    table.finish()
    return plan


def check_node(table: FileTable, key: str, name: str | None, nodes: Sequence[NodePlan]) -> None:
    """Report a name that is that of no node; `None` is not checked."""
    names = [node.name for node in nodes]
    if name is not None and name not in names:
        near = suggestion(name, names)
        table.add(key, f"no node {name!r}; there are: {', '.join(names) or 'none'}{near}")


def _check_name(table: FileTable, name: str) -> None:
    try:
        values.name(name)
    except ValueError as error:
        table.add(name, str(error))


def _worker(workers: FileTable, key: str, kinds: Mapping[str, KindOptions]) -> WorkerPlan | None:
    try:
        own = values.local_address(key)
    except ValueError as error:
        workers.add(key, str(error))
        return None
    # `echo = "echo"` is short for `echo = { kind = "echo" }`.
    table = workers.table(key, short="kind")
    kind = table.take("kind", values.text, "")
    class_path = table.take("class", _class_path, "")
    plan = WorkerPlan(
        place=table.place,
        address=own,
        kind=kind,
        class_path=class_path,
        also=table.take("also", values.local_addresses, ()),
        makes=table.take("makes", values.local_addresses, ()),
        mailbox=_mailbox(table.table("mailbox", short="limit")),
        supervision=_supervision(table.table("supervision", short="on_failure")),
        options=_options(table, kind, kinds),
    )
    if not table.has_problem and bool(kind) == bool(class_path):
        table.add("", "it has both a kind and a class" if kind else "kind or class is missing")
    table.finish()
    return plan


def _class_path(value: object) -> str:
    written = values.text(value)
    if not _CLASS.fullmatch(written):
        raise ValueError(f"{written!r} is not package.module:Class")
    return written


def _options(worker: FileTable, kind: str, kinds: Mapping[str, KindOptions]) -> dict[str, object]:
    table = worker.table("options")
    if not kind:
        return table.rest()
    if kind not in kinds:
        names = sorted(kinds)
        near = suggestion(kind, names)
        worker.add("kind", f"no kind {kind!r}; there are: {', '.join(names)}{near}")
        return {}
    return read_options(table, kinds[kind])


def _mailbox(table: FileTable) -> MailboxPlan:
    plan = MailboxPlan(
        limit=table.maybe("limit", values.count),
        overflow=table.maybe("overflow", values.one_of(*OVERFLOWS)),
    )
    table.finish()
    return plan


def _supervision(table: FileTable) -> SupervisionPlan:
    plan = SupervisionPlan(
        on_failure=table.maybe("on_failure", values.one_of(*ON_FAILURE)),
        max_restarts=table.maybe("max_restarts", values.count),
        within=table.maybe("within", values.seconds),
    )
    table.finish()
    return plan


def _listener(
    listeners: FileTable, name: str, node: str, transports: TransportOptions
) -> ListenerPlan:
    _check_name(listeners, name)
    # `main = "tcp://..."` is short for `main = { uri = "tcp://..." }`.
    table = listeners.table(name, short="uri")
    uri = table.need("uri", values.uri) or ""
    plan = ListenerPlan(
        place=table.place,
        node=node,
        name=name,
        uri=uri,
        expose=table.take("expose", values.addresses, ()),
        allow=table.take("allow", values.addresses, ()),
        options=read_transport_options(table, uri, transports),
        principals=table.take("principals", values.text, ""),
    )
    table.finish()
    return plan
