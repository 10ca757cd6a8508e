"""Reading a container of AMQP: the connection of a dispatcher to it, and its links to names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..toml import FileTable, Position
from . import _values as values

__all__ = ["ContainerLinkPlan", "ContainerPlan", "read_container", "read_containers"]

DIRECTIONS: Final = ("in", "out")
FILES: Final = ("certificate", "key", "authority")
"""The keys of files for TLS, as `TlsOptions` has them."""


@dataclass(frozen=True, slots=True)
class ContainerLinkPlan:
    """A link between an address of a container and a name, or a name with links through to it.

    Attributes:
        kind: `in`: messages of the address are sent to the name; `out`: messages to the name are
            sent to the address; `route`: links to the name go through to the address.
        address: The address, as the container knows it; of a route empty if it is the name.
        name: The name.
    """

    kind: str
    address: str
    name: str


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """A container of AMQP 1.0 that a dispatcher connects to.

    Attributes:
        place: Its place in the file.
        name: Its name; empty: it is known by its URI.
        uri: Its URI.
        links: Its links and routes.
        user: The name that it is shown; empty: none is.
        password_file: The file with the password of that name; empty: there is none.
        certificate: The file with the certificate that it is shown; empty: none is.
        key: The file with its key; empty: it is in that of the certificate.
        authority: The file with the authorities to trust; empty: those of the system.
        server_name: The name that its certificate must have; empty: the host of the URI.
    """

    place: Position
    name: str
    uri: str
    links: tuple[ContainerLinkPlan, ...] = ()
    user: str = ""
    password_file: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    server_name: str = ""

    @property
    def files(self) -> dict[str, str]:
        """The files for TLS that are named, by their keys."""
        found = {"certificate": self.certificate, "key": self.key, "authority": self.authority}
        return {key: file for key, file in found.items() if file}


def read_containers(dispatcher: FileTable) -> tuple[ContainerPlan, ...]:
    """Read the containers of the dispatcher of a node, each by its name."""
    containers = dispatcher.table("containers")
    made: list[ContainerPlan] = []
    for name in containers.keys():  # noqa: SIM118 - a table of the file is no mapping
        try:
            values.name(name)
        except ValueError as error:
            containers.add(name, str(error))
        made.append(read_container(containers.table(name), name))
    return tuple(made)


def read_container(table: FileTable, name: str = "") -> ContainerPlan:
    """Read one container.

    Args:
        table: Its table.
        name: Its name; by default the one in the table.
    """
    name = name or table.take("name", _written, "")
    uri = table.need("uri", values.text) or ""
    if uri and not uri.startswith(("amqp://", "amqps://")):
        table.add("uri", "it is not amqp://HOST:PORT or amqps://HOST:PORT")
    user, password_file = table.maybe("user", _written), table.maybe("password_file", _written)
    if (user is None) is not (password_file is None):
        table.add("", "user and password_file go together")
    certificate, key, authority = (table.take(each, _written, "") for each in FILES)
    server_name = table.take("server_name", _written, "")
    if (certificate or key or authority or server_name) and not uri.startswith("amqps:"):
        table.add("", "certificates go with amqps://")
    if key and not certificate:
        table.add("key", "it goes with the certificate that it is the key of")
    links = _links(table)
    if len(set(links)) != len(links):
        table.add("", "two of its links are the same")
    table.finish()
    return ContainerPlan(
        place=table.place,
        name=name,
        uri=uri,
        links=links,
        user=user or "",
        password_file=password_file or "",
        certificate=certificate,
        key=key,
        authority=authority,
        server_name=server_name,
    )


def _links(table: FileTable) -> tuple[ContainerLinkPlan, ...]:
    made: list[ContainerLinkPlan] = []
    for direction in DIRECTIONS:
        for each in table.tables(direction):
            address, name = each.need("address", _written), each.need("name", _written)
            each.finish()
            if address and name:
                made.append(ContainerLinkPlan(direction, address, name))
    for each in table.tables("route"):
        name, address = each.need("name", _written), each.take("address", values.text, "")
        each.finish()
        if name:
            made.append(ContainerLinkPlan("route", address, name))
    return tuple(made)


def _written(value: object) -> str:
    if not (written := values.text(value)):
        raise ValueError("it is empty")
    return written
