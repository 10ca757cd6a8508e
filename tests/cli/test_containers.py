"""The containers of AMQP of `onward dispatch`: their file, its faults, and its reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from onward.cli._containers import ContainerPlan, Containers, read_containers
from onward.cli._status import CommandError
from onward.protocol.security import UserPassword
from onward.protocol.toml import FileError
from onward.transports.amqp import AmqpListener, AutoLink, LinkRoute
from tests.support.amqp import needs_proton
from tests.support.transports import eventually

LINKS = """
[[container]]
uri = "amqp://127.0.0.1:1"
[[container.in]]
address = "new-orders"
name = "orders"
[[container.out]]
address = "sent-bills"
name = "bills"
[[container.route]]
name = "jobs"
address = "queue"
[[container.route]]
name = "more"
"""


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "containers.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def secret(folder: Path, content: bytes = b"secret\n") -> None:
    (folder / "password").write_bytes(content)
    (folder / "password").chmod(0o600)


def test_a_file_has_containers_with_their_links(tmp_path: Path) -> None:
    secret(tmp_path)
    (tmp_path / "authority.pem").write_text("x")
    more = """
[[container]]
name = "shop"
uri = "amqps://broker:5671"
user = "ann"
password_file = "password"
authority = "authority.pem"
server_name = "broker.example"
"""
    first, second = read_containers(written(tmp_path, LINKS + more))
    assert first == ContainerPlan(
        "amqp://127.0.0.1:1",
        (
            AutoLink("in", "new-orders", "orders"),
            AutoLink("out", "sent-bills", "bills"),
            LinkRoute("jobs", "queue"),
            LinkRoute("more"),
        ),
    )
    assert (first.name, second.name) == ("", "shop")
    assert second.credentials == UserPassword("ann", "secret")
    assert second.tls is not None
    assert second.tls.authority == str(tmp_path / "authority.pem")
    assert second.tls.server_name == "broker.example"
    assert second.certificates == (b"x",)


HEAD = '[[container]]\nuri = "amqps://a:1"\n'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("nonsense = 1", "nonsense: unknown key; there are: container"),
        (b"\xff", "UTF-8"),
        ("container = 1", "is not a list of tables"),
        ("[[container]]", "uri is missing"),
        ('[[container]]\nuri = "tcp://a:1"', "it is not amqp://HOST:PORT"),
        ('[[container]]\nuri = "amqp://a:1"\nkey = "k"', "certificates go with amqps://"),
        (HEAD + 'user = "ann"', "user and password_file go together"),
        (HEAD + "user = 1", "1 is not text"),
        (HEAD + '[[container.in]]\nname = "orders"', "address is missing"),
        (HEAD + '[[container.out]]\nname = ""\naddress = "a"', "it is empty"),
        (HEAD + "[[container.route]]", "name is missing"),
        (
            HEAD + '[[container.route]]\nname = "a"\nto = "b"',
            "unknown key; there are: address, name",
        ),
        (
            HEAD + '[[container.route]]\nname = "a"\n' * 1 + '[[container.route]]\nname = "a"',
            "same",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str, text: str) -> None:
    with pytest.raises(FileError, match=text):
        read_containers(written(tmp_path, content))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot read"):
        read_containers(tmp_path / "nothing.toml")
    login = HEAD + 'user = "ann"\npassword_file = "password"\nauthority = "nothing.pem"'
    with pytest.raises(FileError) as caught:
        read_containers(written(tmp_path, login))
    first, second = str(caught.value).splitlines()
    missing = "No such file or directory"
    assert first.endswith(f":4: container[0].password_file: {tmp_path / 'password'}: {missing}")
    place = f"container[0].authority: cannot read {tmp_path / 'nothing.pem'}"
    assert second.endswith(f":5: {place}: {missing}")
    secret(tmp_path, b"\xff")
    text = r":4: container\[0\].password_file: .*password is not UTF-8"
    with pytest.raises(FileError, match=text):
        read_containers(written(tmp_path, login))


async def test_a_file_is_applied_and_read_anew(tmp_path: Path) -> None:
    needs_proton()
    async with Node("far") as far_node, Node("near") as node:
        far, near = await Dispatcher.attach(far_node), await Dispatcher.attach(node)
        listener = await far_node.listen("amqp://127.0.0.1:0", dispatcher=far)
        assert isinstance(listener, AmqpListener)
        uri = listener.uri

        def content(*names: str) -> str:
            tables = (f'[[container.in]]\naddress = "{each}"\nname = "orders"\n' for each in names)
            return f'[[container]]\nuri = "{uri}"\n' + "".join(tables)

        path = written(tmp_path, content("a"))
        containers = Containers(path)
        containers.start(node, near)
        (first,) = containers.running
        await eventually(lambda: first.statistics().attached == 1)
        (await containers.prepare())()
        assert containers.running == (first,)
        written(tmp_path, content("a", "b"))
        apply = await containers.prepare()
        assert containers.running == (first,)
        apply()
        (second,) = containers.running
        await eventually(lambda: second.statistics().attached == 2)
        written(tmp_path, "nonsense = 1")
        with pytest.raises(FileError):
            await containers.prepare()
        written(tmp_path, HEAD + 'authority = "nothing.pem"')
        with pytest.raises(ValueError, match="cannot read"):
            await containers.prepare()
        assert containers.running == (second,)
        written(tmp_path, "")
        (await containers.prepare())()
        assert len(containers.running) == 0
        await containers.close()
        await eventually(lambda: listener.statistics().connections == 0)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ('uri = "amqp://a"', "amqp://a"),
        ('uri = "amqp://a:1"\nuser = "ann"\npassword_file = "password"', "with TLS only"),
        ('uri = "amqps://a:1"\nauthority = "password"', "amqps://a:1"),
    ],
)
async def test_a_container_that_cannot_be_is_refused(tmp_path: Path, head: str, text: str) -> None:
    needs_proton()
    secret(tmp_path)
    async with Node("near") as node:
        containers: Any = Containers(written(tmp_path, "[[container]]\n" + head))
        with pytest.raises(CommandError, match=text):
            containers.start(node, await Dispatcher.attach(node))
