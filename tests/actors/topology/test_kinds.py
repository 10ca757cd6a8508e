"""The services that a file can name, on simulated nodes that find one another through a hub."""

from __future__ import annotations

from pathlib import Path

from onward.actors.services import DiscoveryClient
from onward.actors.topology import KINDS, Topology, read
from onward.protocol import address
from onward.transports.simulated import SimulatedNetwork

HUB = """
[nodes.hub.workers]
forwarding_service = { kind = "relay", options = { expose_at = ["main"], max_relays = 5 } }
static_forwarding_service = { kind = "static_relay", makes = ["forward_to_printer"] }
pub_sub = { kind = "pubsub", makes = ["pub_sub_t_news"] }
discovery = { kind = "discovery", options = { expire_after = 20 } }

[nodes.hub.listeners.main]
uri = "tcp://127.0.0.1:0"
expose = [
  "forwarding_service",
  "static_forwarding_service",
  "forward_to_printer",
  "pub_sub",
  "pub_sub_t_news",
  "discovery",
]

[nodes.device.workers]
echo = "echo"
seen = { kind = "record", also = ["seen.list"] }

[nodes.device.workers.registers]
kind = "relay_client"
options = { route = "hub => static_forwarding_service", alias = "printer" }

[nodes.device.workers.moves]
kind = "relay_client"
options = { route = "hub => forwarding_service" }

[nodes.device.workers.listens]
kind = "subscriber"
options = { route = "hub => pub_sub", name = "device", topic = "news", deliver = "seen" }

[nodes.device.workers.announces]
kind = "announcer"
options = { route = "hub => discovery", name = "printer", target = "echo" }

[nodes.user]

[[links]]
from = "device"
to = "hub"
expose = ["echo"]

[[links]]
from = "user"
to = "hub"

[[requests]]
from = "user"
route = "hub => forward_to_printer => echo"
payload = "page"
expect = "page"
timeout = 0.5
within = 5

[[requests]]
from = "user"
route = "hub => pub_sub_t_news"
payload = "rain"
error = "no answer in time"
timeout = 1

[[requests]]
from = "device"
route = "seen.list"
expect = "rain"
within = 5
"""


async def test_services_and_who_uses_them() -> None:
    async with (
        SimulatedNetwork(1) as network,
        await Topology.start(read(HUB), network=network) as topology,
    ):
        outcomes = await topology.check()
        assert [outcome.ok for outcome in outcomes] == [True, True, True], outcomes
        user = topology.node("user")
        reasons = topology.node("hub").statistics(workers=False).dead_letter_reasons
        assert "refused by a service" not in reasons
        found = await DiscoveryClient(user, "hub => discovery").get("printer")
        assert found is not None
        assert found.route[-1] == address("announces")


def test_every_kind_is_in_the_guide() -> None:
    guide = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "topologies.md"
    text = guide.read_text()
    assert [name for name in KINDS if f"| `{name}` |" not in text] == []
