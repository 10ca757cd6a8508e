"""The worker of the directory: what workers of the node ask it, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors import Node, Refused
from onward.actors.identity import (
    DIRECTORY,
    OPEN_WAIT,
    DirectoryFile,
    DirectoryFileFailed,
    DirectoryFileInUse,
    DirectoryWorker,
    find_directory_row,
)
from onward.actors.testing import virtual_time
from onward.protocol import Address, AddressInUse, Context, Outside
from onward.protocol.identity import (
    EQUIVOCATION_PENALTY,
    RESULT_OK,
    SCOPE_ANY,
    TRUST_DEFAULT,
    AdvertEnvelope,
    AdvertKind,
    AdvertRequest,
    AdvertSource,
    ControlRecord,
    DirectoryLimits,
    Identity,
    IdentityRecord,
    LocalMetadata,
    LookupIdentityRequest,
    LookupIdentityResponse,
    NewerDirectory,
    NodeAdvert,
    Result,
    ResultCode,
    TopicAdvert,
    UpdateIdentityRequest,
    UpdateIdentityResponse,
    Verifiers,
    parse_control,
    serialize_control,
    sign_advert,
)
from tests.support.identities import NOW, attached, key_of
from tests.support.transports import eventually

NODE, OTHER = key_of("node"), key_of("other")
ADVERT = sign_advert(NodeAdvert(NODE.identity, (), bytes(32), 1, int(NOW * 1000)), NODE)


async def started(
    node: Node, path: Path | None = None, limits: DirectoryLimits | None = None
) -> DirectoryWorker:
    loop = node.loop
    worker = DirectoryWorker(Verifiers(), lambda: int((NOW + loop.time()) * 1000), path, limits)
    await node.start(lambda: worker, address=DIRECTORY)
    return worker


async def ask(node: Node, request: ControlRecord) -> ControlRecord:
    return parse_control((await node.request(DIRECTORY, serialize_control(request))).payload)


async def look_up(node: Node, identity: Identity) -> IdentityRecord | None:
    response = await ask(node, LookupIdentityRequest(identity))
    assert isinstance(response, LookupIdentityResponse)
    assert response.identity == identity
    return response.record


async def update(
    node: Node, identity: Identity, local: LocalMetadata, advert: AdvertEnvelope | None = None
) -> Result:
    response = await ask(node, UpdateIdentityRequest(identity, local, advert))
    assert isinstance(response, UpdateIdentityResponse)
    assert response.identity == identity
    return response.result


@virtual_time
async def test_workers_look_up_and_update_identities() -> None:
    async with Node("a") as node:
        worker = await started(node)
        assert await look_up(node, NODE.identity) is None
        local = LocalMetadata(200)
        assert await update(node, NODE.identity, local, ADVERT) == RESULT_OK
        record = IdentityRecord(NODE.identity, ADVERT, local)
        assert await look_up(node, NODE.identity) == record
        assert worker.service.peek(NODE.identity) == record
        # The advert is known then, and what is said replaces all that was said before.
        assert await update(node, NODE.identity, LocalMetadata(), ADVERT) == RESULT_OK
        assert await look_up(node, NODE.identity) == IdentityRecord(NODE.identity, ADVERT)
        assert worker.service.statistics().used == 1


@virtual_time
async def test_an_update_that_is_not_made_says_why() -> None:
    async with Node("a") as node:
        await started(node, limits=DirectoryLimits(max_identities=2, max_unknown=1))
        result = await update(node, OTHER.identity, LocalMetadata(1), ADVERT)
        assert result == Result(ResultCode.BAD_ADVERT, "it is no advert of this identity")
        broken = AdvertEnvelope(AdvertKind.NODE, b"x")
        result = await update(node, OTHER.identity, LocalMetadata(1), broken)
        assert result == Result(ResultCode.BAD_ADVERT, "it is no advert of this identity")
        assert await look_up(node, OTHER.identity) is None
        forged = AdvertEnvelope(AdvertKind.NODE, ADVERT.envelope[:-1] + b"x")
        result = await update(node, NODE.identity, LocalMetadata(1), forged)
        told = "all but the advert is set: it is not signed by its identity, "
        told += "or by the node of its engine"
        assert result == Result(ResultCode.BAD_ADVERT, told)
        assert await look_up(node, NODE.identity) == IdentityRecord(
            NODE.identity, None, LocalMetadata(1)
        )
        result = await update(node, OTHER.identity, LocalMetadata(1))
        told = "the directory holds as many identities as it may"
        assert result == Result(ResultCode.OVERFLOW, told)


@virtual_time
async def test_threat_13_an_advert_of_a_topic_is_refused_ignored_or_marked() -> None:
    async with Node("a") as node:
        worker = await started(node)
        changed: list[Identity] = []
        worker.service.on_update.append(lambda update: changed.append(update.identity))
        topic, local = NODE.identity, LocalMetadata()

        def advert(version: int, tag: str) -> AdvertEnvelope:
            told = TopicAdvert(topic, (tag,), None, SCOPE_ANY, version, int(NOW * 1000))
            return sign_advert(told, NODE)

        assert await update(node, topic, local, advert(2, "news")) == RESULT_OK
        signed = sign_advert(
            TopicAdvert(OTHER.identity, (), None, SCOPE_ANY, 3, int(NOW * 1000)), OTHER
        )
        payload = advert(3, "stolen").envelope[:-64] + signed.envelope[-64:]
        stolen = AdvertEnvelope(AdvertKind.TOPIC, payload)
        for refused, told in (
            (stolen, "it is not signed by its identity, or by the node of its engine"),
            (advert(1, "old"), "there is a newer one"),
            (advert(2, "other"), "there is another one of the same version"),
        ):
            result = await update(node, topic, local, refused)
            assert result == Result(ResultCode.BAD_ADVERT, f"all but the advert is set: {told}")
        record = await look_up(node, topic)
        assert record is not None
        assert record.advert == advert(2, "news")
        assert record.equivocated
        assert record.local.trust == TRUST_DEFAULT - EQUIVOCATION_PENALTY
        await eventually(lambda: changed == [topic])  # as it is in the end


@virtual_time
async def test_any_other_message_gets_an_error_reply() -> None:
    async with Node("a") as node:
        await started(node)
        with pytest.raises(Refused, match="no request to the directory: "):
            await node.request(DIRECTORY, b"\x00")
        with pytest.raises(Refused, match="the directory takes no AdvertRequest"):
            await ask(node, AdvertRequest(NODE.identity))
        assert node.dead_letters.by_reason == {
            "no request to the directory": 1,
            "the directory takes no AdvertRequest": 1,
        }


@virtual_time
async def test_a_request_without_a_return_route_is_done_and_not_answered() -> None:
    async with Node("a") as node:
        worker = await started(node)
        node.send(DIRECTORY, serialize_control(LookupIdentityRequest(NODE.identity)))
        request = UpdateIdentityRequest(NODE.identity, LocalMetadata(1))
        node.send(DIRECTORY, serialize_control(request))
        await eventually(lambda: worker.service.peek(NODE.identity) is not None)
        assert node.dead_letters.total == 0


def allows(address: Address) -> bool:
    return True


@virtual_time
async def test_what_another_node_has_sent_is_denied() -> None:
    async with Node("a") as node:
        worker = await started(node)
        context = Context(outside=Outside(0, allows))
        request = serialize_control(UpdateIdentityRequest(NODE.identity, LocalMetadata(0)))
        answer = await node.request(DIRECTORY, request, context=context)
        told = "the directory takes messages of this node alone"
        assert parse_control(answer.payload) == UpdateIdentityResponse(
            NODE.identity, Result(ResultCode.DENIED, told)
        )
        request = serialize_control(LookupIdentityRequest(NODE.identity))
        with pytest.raises(Refused, match=told):
            await node.request(DIRECTORY, request, context=context)
        assert node.dead_letters.by_reason == {told: 2}
        assert worker.service.peek(NODE.identity) is None
        assert worker.service.statistics().missed == 0


async def test_other_nodes_do_not_reach_it(a: Node, c: Node) -> None:
    theirs = await attached(c)
    listener = await c.listen("memory://directory", expose=[DIRECTORY])
    link = await a.connect(listener.uri, expose=[])
    request = serialize_control(UpdateIdentityRequest(NODE.identity, LocalMetadata(0)))
    a.send((link, DIRECTORY), request)
    await eventually(lambda: c.dead_letters.total == 1)
    assert c.dead_letters.by_reason == {"denied": 1}
    assert theirs.directory.peek(NODE.identity) is None


# --- the file -----------------------------------------------------------------------------------


@virtual_time
async def test_a_directory_is_saved_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    async with Node("a") as node:
        worker = await started(node, path)
        saver = worker.service.saver
        assert saver is not None
        worker.service.put(ADVERT, AdvertSource.NETWORK)
        assert saver.unsaved == 1
        await asyncio.sleep(1.0)
        await eventually(lambda: saver.unsaved == 0)
        assert find_directory_row(path, NODE.identity)
        # What is left is written when the node stops.
        for number in range(1000):
            worker.service.set_trust(key_of(f"many {number}").identity, 1)
    async with Node("a") as node:
        service = (await started(node, path)).service
        assert service.statistics().held == 1000
        record = service.peek(NODE.identity)
        assert record is not None
        assert record.advert == ADVERT


@virtual_time
async def test_a_file_that_cannot_be_read_keeps_the_directory_from_starting(
    tmp_path: Path,
) -> None:
    path = tmp_path / "node.directory"
    file = DirectoryFile(path)
    async with Node("a") as node:
        with pytest.raises(DirectoryFileInUse):
            await started(node, path)
        file._file.execute("PRAGMA user_version=2")
        file.close()
        with pytest.raises(NewerDirectory):
            await started(node, path)
        path.unlink()
        await started(node, path)


@virtual_time
async def test_a_node_waits_for_a_command_that_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    file = DirectoryFile(path)
    async with Node("a") as node:
        starting = asyncio.create_task(started(node, path))
        await asyncio.sleep(OPEN_WAIT - 0.2)
        assert not starting.done()
        file.close()
        await starting


@virtual_time
async def test_a_file_that_fails_while_it_is_read_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.directory"
    DirectoryFile(path).close()

    def fail(file: DirectoryFile) -> None:
        raise DirectoryFileFailed(file.path, "disk I/O error")

    async with Node("a") as node:
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryFile, "pages", fail)
            with pytest.raises(DirectoryFileFailed, match="disk I/O error"):
                await started(node, path)
        await started(node, path)


@virtual_time
async def test_a_node_has_one_directory() -> None:
    async with Node("a") as node:
        await attached(node)
        with pytest.raises(AddressInUse):
            await started(node)
