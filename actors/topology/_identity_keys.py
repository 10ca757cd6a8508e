"""The keys of a running topology: of its nodes, topics and domains, and their names in the file."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.topology import DomainPlan, IdentityPlan, KeyPlan, TopologyPlan, engine_name
from ..security._own_files import read_own_secret

if TYPE_CHECKING:
    from ...protocol.identity import Identity, SigningKey
    from ..identity import IdentityKeys

__all__ = ["group_keys", "keys_of", "names_of", "seeded"]

_NODE = "node"


def names_of(name: str, plan: IdentityPlan, own: Identity) -> dict[str, str]:
    """Return the identities of a node and its engines, as text, by their names in the file."""
    from ...protocol.identity import derived_engine, identity_text

    engines = {
        engine_name(name, each): identity_text(derived_engine(own, each.value))
        for each in plan.engines
    }
    return {name: identity_text(own)} | engines


def seeded(topology: TopologyPlan, *, simulated: bool) -> dict[str, str]:
    """Return the identities that are known before their nodes run, as text, by their names."""
    from ...protocol.identity import identity_text

    names: dict[str, str] = {}
    for node in topology.nodes:
        plan = node.identity
        if plan is None:
            continue
        key = _seed_key(_NODE, plan.key, node.name, simulated=simulated)
        names |= {} if key is None else names_of(node.name, plan, key.identity)
        for each in plan.groups:
            key = _seed_key(_kind_of(each), each.key, each.name, simulated=simulated)
            names |= {} if key is None else {each.name: identity_text(key.identity)}
    return names


def keys_of(
    plan: KeyPlan, name: str, directory: str, *, simulated: bool
) -> SigningKey | IdentityKeys:
    """Return the keys of a node: of its file, of its seed, or some that are made for the run.

    Args:
        plan: The keys.
        name: The name of the node.
        directory: The value of `{dir}` in the paths of files.
        simulated: Whether the node is one of a simulated network.

    Raises:
        KeyFileError: The file cannot be used.
        OSError: It cannot be read or written.
    """
    return _keys(_NODE, plan, name, directory, simulated=simulated)


def group_keys(plan: IdentityPlan, directory: str, *, simulated: bool) -> dict[str, SigningKey]:
    """Return the keys of the topics and domains of a node, by their names; as `keys_of`."""
    from ...protocol.identity import SigningKey

    made: dict[str, SigningKey] = {}
    for each in plan.groups:
        keys = _keys(_kind_of(each), each.key, each.name, directory, simulated=simulated)
        made[each.name] = keys if isinstance(keys, SigningKey) else keys.signing
    return made


def _kind_of(group: object) -> str:
    return "domain" if isinstance(group, DomainPlan) else "topic"


def _seed_key(kind: str, plan: KeyPlan, name: str, *, simulated: bool) -> SigningKey | None:
    """Return the key that is made of a seed; in a simulated network the name is one."""
    from ...protocol.identity import SigningKey

    # No two runs would be the same with a key of chance.
    seed = plan.seed or (name if simulated and plan.is_made else "")
    if not seed:
        return None
    # A node, a topic and a domain with the same seed are not to have the same key.
    prefix = "onward topology " if kind == _NODE else f"onward topology {kind}\0"
    return SigningKey(sha256((prefix + seed).encode()).digest())


def _keys(
    kind: str, plan: KeyPlan, name: str, directory: str, *, simulated: bool
) -> SigningKey | IdentityKeys:
    from ...protocol.identity import SEED_SIZE, SigningKey
    from ..identity import load_key_file, make_key_file

    if plan.file:
        words: str | None = None
        if plan.passphrase_file:
            words = read_own_secret(Path(plan.passphrase_file.replace("{dir}", directory)))
        return load_key_file(Path(plan.file.replace("{dir}", directory)), words)
    seed_key = _seed_key(kind, plan, name, simulated=simulated)
    if seed_key is not None:
        return seed_key
    if not directory:
        return SigningKey(os.urandom(SEED_SIZE))
    path = Path(directory) / f"{name}.key"  # what is started again has it again
    return load_key_file(path) if path.exists() else make_key_file(path)
