"""Reading `topics`, `subscribe`, `domains` and `serve` of `[nodes.NAME.identity]`.

Topics and domains have keys, and so names of their own in the file, which stand for their
identities in routes: `36#topic:{prices}` and `36#domain:{shops}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast

from .._address import Address
from ..toml import FileTable, Position
from . import _values as values

__all__ = [
    "SCOPES",
    "DomainPlan",
    "KeyPlan",
    "ServicePlan",
    "SubscriptionPlan",
    "TopicPlan",
    "read_domains",
    "read_key",
    "read_services",
    "read_subscriptions",
    "read_topics",
]

SCOPES: Final = ("any", "local")
"""What a scope can be besides the name of a domain."""


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """The key of a node, a topic or a domain. Without a file and a seed it is made for the run.

    Attributes:
        file: The file of the key; empty: none.
        passphrase_file: The file of the passphrase of an encrypted one; empty: none.
        seed: A text that the key is made of, which is no secret then; empty: none.
    """

    file: str = ""
    passphrase_file: str = ""
    seed: str = ""

    @property
    def is_made(self) -> bool:
        """Whether it is made for the run."""
        return not (self.file or self.seed)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that a node creates.

    Attributes:
        place: Its place in the file.
        name: Its name in the file.
        engine: The worker that owns it, which is an engine.
        scope: How far it goes: `any`, `local`, or the name of a domain.
        publishers: The names of the engines and nodes that may publish besides its engine.
        key: Its key.
    """

    place: Position
    name: str
    engine: Address
    scope: str = "local"
    publishers: tuple[str, ...] = ()
    key: KeyPlan = field(default=KeyPlan())


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """A worker that is subscribed to topics.

    Attributes:
        place: Its place in the file.
        worker: The worker, which is an engine.
        topics: The names of the topics.
        scope: How far these may be: `any`, `local`, or the name of a domain.
    """

    place: Position
    worker: Address
    topics: tuple[str, ...]
    scope: str = "any"


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """A domain that a node has the key of, and signs the members of.

    Attributes:
        place: Its place in the file.
        name: Its name in the file.
        members: The names of the nodes that are its members; none: the node itself.
        admit: The names of the nodes that are let in when they ask.
        admits_all: Whether each node is let in that asks.
        key: Its key.
    """

    place: Position
    name: str
    members: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    admits_all: bool = False
    key: KeyPlan = field(default=KeyPlan())


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A worker that serves domains.

    Attributes:
        place: Its place in the file.
        worker: The worker.
        domains: The names of the domains.
        expose: Other addresses that requests to the domains may go to.
    """

    place: Position
    worker: Address
    domains: tuple[str, ...]
    expose: tuple[Address, ...] = ()


def read_key(table: FileTable) -> KeyPlan:
    """Read the key of a node, a topic or a domain, of the table that it is in."""
    plan = KeyPlan(
        file=table.take("key_file", values.text, ""),
        passphrase_file=table.take("passphrase_file", values.text, ""),
        seed=table.take("seed", values.text, ""),
    )
    if plan.file and plan.seed:
        table.add("", "it has both a key_file and a seed")
    if plan.passphrase_file and not plan.file:
        table.add("passphrase_file", "it goes with key_file")
    return plan


def read_topics(identity: FileTable) -> tuple[TopicPlan, ...]:
    """Read the topics that a node creates."""
    topics = identity.table("topics")
    found = [_topic(topics, name) for name in topics.keys()]  # noqa: SIM118 - no mapping
    return tuple(each for each in found if each is not None)


def _topic(topics: FileTable, name: str) -> TopicPlan | None:
    # `prices = "till"` is short for `prices = { engine = "till" }`.
    table = topics.table(name, short="engine")
    _check_name(table, name)
    engine = table.need("engine", values.local_address)
    plan = None
    if engine is not None:
        plan = TopicPlan(
            place=table.place,
            name=name,
            engine=engine,
            scope=table.take("scope", values.text, "local"),
            publishers=table.take("publishers", values.texts, ()),
            key=read_key(table),
        )
        if plan.publishers and plan.scope == "local":
            table.add("publishers", "it goes with a scope beyond the node")
        table.finish()
    return plan


def read_domains(identity: FileTable) -> tuple[DomainPlan, ...]:
    """Read the domains that a node has the keys of."""
    domains = identity.table("domains")
    return tuple(_domain(domains, name) for name in domains.keys())  # noqa: SIM118 - no mapping


def _domain(domains: FileTable, name: str) -> DomainPlan:
    table = domains.table(name)
    _check_name(table, name)
    if name in SCOPES:
        table.add("", f"a domain cannot be called {name!r}, as a scope is")
    admit = table.maybe("admit", _admitted)
    plan = DomainPlan(
        place=table.place,
        name=name,
        members=table.take("members", values.texts, ()),
        admit=admit if isinstance(admit, tuple) else (),
        admits_all=admit is True,
        key=read_key(table),
    )
    table.finish()
    return plan


def _admitted(value: object) -> tuple[str, ...] | bool:
    """Return the names of the nodes that are let in, or true for all."""
    if value is True:
        return True
    if isinstance(value, list):
        return values.texts(cast("object", value))
    raise ValueError(f"{values.shown(value)} is neither true nor a list of names")


def _check_name(table: FileTable, name: str) -> None:
    try:
        values.name(name)
    except ValueError as error:
        table.add("", str(error))


def _names(value: object) -> tuple[str, ...]:
    """Return one name or several."""
    return values.texts([value] if isinstance(value, str) else value)


def read_subscriptions(identity: FileTable) -> tuple[SubscriptionPlan, ...]:
    """Read the workers that are subscribed to topics."""
    workers = identity.table("subscribe")
    found: list[SubscriptionPlan] = []
    for key in workers.keys():  # noqa: SIM118 - no mapping
        # `shop = "prices"` is short for `shop = { topic = "prices" }`.
        table = workers.table(key, short="topic")
        worker = _worker(table, key)
        topics = table.need("topic", _names) or ()
        scope = table.take("scope", values.text, "any")
        table.finish()
        if worker is not None:
            found.append(SubscriptionPlan(table.place, worker, topics, scope))
    return tuple(found)


def read_services(identity: FileTable) -> tuple[ServicePlan, ...]:
    """Read the workers that serve domains."""
    workers = identity.table("serve")
    found: list[ServicePlan] = []
    for key in workers.keys():  # noqa: SIM118 - no mapping
        # `orders = "shops"` is short for `orders = { domain = "shops" }`.
        table = workers.table(key, short="domain")
        worker = _worker(table, key)
        domains = table.need("domain", _names) or ()
        expose = table.maybe("expose", values.addresses) or ()
        table.finish()
        if worker is not None:
            found.append(ServicePlan(table.place, worker, domains, expose))
    return tuple(found)


def _worker(table: FileTable, key: str) -> Address | None:
    try:
        return values.local_address(key)
    except ValueError as error:
        table.add("", str(error))
        return None
