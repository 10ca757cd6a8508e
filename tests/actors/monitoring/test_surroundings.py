"""What surrounds a broker, as a picture."""

from __future__ import annotations

from onward.actors.monitoring._surroundings import MAX_BOXES, Surroundings, Traffic, picture_of
from tests.support.pictures import check


def test_a_service_that_sends_requests_has_both_arrows() -> None:
    requesters = {"": Traffic(2, 7), "web": Traffic(1, 5)}
    services = {"web": Traffic(3, 1), "orders": Traffic(1, 1200)}
    picture = picture_of(Surroundings("b", {"tcp://x:1": 4}, requesters, services))
    check(picture)
    rows = {box.name: [row.left for row in box.rows] for box in picture.boxes}
    assert rows == {
        "node b": [],
        "no service": ["2 requesters"],
        "service=web": ["1 requester", "3 destinations"],
        "service=orders": ["1 destination"],
    }
    assert [(row.left, row.right) for row in picture.boxes[0].uris] == [
        ("tcp://x:1", "4 connections")
    ]
    assert sorted(label.text for label in picture.labels) == [
        "1 request",
        "1,200 requests",
        "5 requests",
        "7 requests",
    ]


def test_the_busiest_are_drawn_and_the_others_together() -> None:
    services = {f"s{number}": Traffic(1, number) for number in range(MAX_BOXES + 3)}
    peers = [(f"peer-{number}", "TcpLink") for number in range(MAX_BOXES + 3)]
    picture = picture_of(Surroundings("b", services=services, peers=peers))
    check(picture)
    names = [box.name for box in picture.boxes]
    assert "service=s2" not in names
    assert "service=s3" in names
    (others,) = (box for box in picture.boxes if box.name == "other services")
    assert [(row.left, row.right) for row in others.rows] == [("3 destinations", "of 3 services")]
    assert "3 requests" in {label.text for label in picture.labels}  # 0 + 1 + 2
    assert sum(box.outside for box in picture.boxes) == MAX_BOXES


def test_names_of_peers_have_no_unseen_characters() -> None:
    picture = picture_of(
        Surroundings("b\u202e", {}, {"a\x1b": Traffic(1, 1)}, {"a\u200b": Traffic(1, 1)})
    )
    assert {box.name for box in picture.boxes} == {"node b\ufffd", "service=a\ufffd"}


def test_a_node_alone() -> None:
    picture = picture_of(Surroundings("alone"))
    check(picture)
    assert [box.name for box in picture.boxes] == ["node alone"]
