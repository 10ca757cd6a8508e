"""From the workers of a plan to what makes them."""

from __future__ import annotations

import pytest

from onward.actors import MailboxOptions, OnFailure, Overflow, Supervision, Worker
from onward.actors.topology import KINDS, WorkerKind, factories, read
from onward.actors.topology._load import mailbox_of, supervision_of
from onward.actors.workers import Echo, Spreader
from onward.protocol import address
from onward.protocol.topology import (
    KindOptions,
    MailboxPlan,
    SupervisionPlan,
    TopologyError,
    TopologyLimits,
)
from tests.actors.topology.own import Shouts

OWN = "tests.actors.topology.own"


def test_workers_of_a_kind() -> None:
    plan = read('[nodes.a.workers]\necho = "echo"\n[nodes.b.workers]\necho = "echo"')
    made = factories(plan, nodes=["b"])
    assert list(made) == [("b", address("echo"))]
    assert isinstance(made["b", address("echo")](), Echo)
    assert len(factories(plan)) == 2


def test_a_spreader_is_told_how_to_choose() -> None:
    plan = read(
        '[nodes.a.workers]\nx = "echo"\n'
        's = { kind = "spreader", options = { routes = ["x"], spread = "least-outstanding" } }'
    )
    worker = factories(plan)["a", address("s")]()
    assert isinstance(worker, Spreader)
    assert worker._least


def test_workers_of_a_class() -> None:
    plan = read(
        f'[nodes.a.workers.x]\nclass = "{OWN}:Shouts"\noptions = {{ end = "?", times = 2 }}\n'
        f'[nodes.a.workers.y]\nclass = "{OWN}:Shouts.Louder"'
    )
    made = factories(plan)
    assert isinstance(made["a", address("x")](), Shouts)
    assert isinstance(made["a", address("y")](), Shouts.Louder)


def test_something_that_does_not_say_what_it_takes_is_taken_at_its_word() -> None:
    # `dict` has no signature.
    plan = read('[nodes.a.workers.x]\nclass = "builtins:dict"\noptions = { a = 1 }')
    made: object = factories(plan)["a", address("x")]()
    assert made == {"a": 1}


def test_all_that_is_wrong_with_classes_is_told() -> None:
    text = f"""
[nodes.a.workers]
a = {{ class = "no.such:Thing" }}
b = {{ class = "{OWN}:Shuots" }}
c = {{ class = "{OWN}:NOT_CALLABLE" }}
d = {{ class = "{OWN}:Shouts", options = {{ ned = "?" }} }}
e = {{ class = "{OWN}:Fails", options = {{ x = 1 }} }}
"""
    with pytest.raises(TopologyError) as caught:
        factories(read(text, "t.toml"))
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "t.toml:3: nodes.a.workers.a.class: cannot import no.such: ModuleNotFoundError: "
        "No module named 'no'"
    )
    assert lines[1].startswith(f"t.toml:4: nodes.a.workers.b.class: module '{OWN}' has no")
    assert lines[2] == f"t.toml:5: nodes.a.workers.c.class: {OWN}:NOT_CALLABLE cannot be called"
    assert lines[3].startswith("t.toml:6: nodes.a.workers.d.class: got an unexpected keyword")
    assert lines[3].endswith("; it takes: end, times")
    assert lines[4] == "t.toml:7: nodes.a.workers.e.class: it takes no options"


def test_kinds_of_one_s_own() -> None:
    kinds = {**KINDS, "shout": WorkerKind(Shouts, "shouts", KindOptions())}
    plan = read('[nodes.a.workers]\nx = "shout"', kinds=kinds)
    assert isinstance(factories(plan, kinds=kinds)["a", address("x")](), Shouts)
    with pytest.raises(TopologyError, match="no kind 'shout'"):
        read('[nodes.a.workers]\nx = "shout"')


def test_a_kind_whose_options_are_wrong() -> None:
    def odd(needed: str) -> Worker:
        raise AssertionError(needed)

    kinds = {"odd": WorkerKind(odd, "is odd")}
    plan = read('[nodes.a.workers]\nx = "odd"', kinds=kinds)
    with pytest.raises(TopologyError, match=r"workers\.x\.kind: missing a required argument"):
        factories(plan, kinds=kinds)


def test_limits_can_be_given() -> None:
    with pytest.raises(TopologyError, match="over the limit of 3"):
        read("[nodes.a]", limits=TopologyLimits(size=3))


@pytest.mark.parametrize(
    ("plan", "mailbox"),
    [
        (MailboxPlan(), None),
        (MailboxPlan(5), MailboxOptions(5)),
        (MailboxPlan(overflow="drop-newest"), MailboxOptions(overflow=Overflow.DROP_NEWEST)),
        (MailboxPlan(1, "wait"), MailboxOptions(1, Overflow.WAIT)),
    ],
)
def test_mailboxes(plan: MailboxPlan, mailbox: MailboxOptions | None) -> None:
    assert mailbox_of(plan) == mailbox


@pytest.mark.parametrize(
    ("plan", "supervision"),
    [
        (SupervisionPlan(), Supervision()),
        (SupervisionPlan("escalate"), Supervision(OnFailure.ESCALATE)),
        (SupervisionPlan("restart", 2, 0.0), Supervision(OnFailure.RESTART, 2, 0.0)),
    ],
)
def test_supervisions(plan: SupervisionPlan, supervision: Supervision) -> None:
    assert supervision_of(plan) == supervision


@pytest.mark.parametrize("name", list(KINDS))
def test_every_kind_has_a_summary_that_can_be_said_of_it(name: str) -> None:
    summary = KINDS[name].summary
    assert summary[0].islower()
    assert not summary.endswith(".")
