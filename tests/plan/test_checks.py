"""Checks of several hosts: what is pending, what a world mixes, which exit code follows, and how it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent.findings import Finding
from launcher.cli import drift as verbs
from launcher.cli import show_drift
from launcher.errors import ConfigError, HostError, UnreachableError
from launcher.fleet import drift
from launcher.host.requests import drift_request
from launcher.host.transport import AgentBugError
from launcher.render import render
from launcher.render.intent import intent
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

DEPLOYMENT = compose(["+hw=rtx6000x8"])
WISH = compose(["+hw=rtx6000x8", "nccl.max_nchannels=8"])
RELEASE = render(DEPLOYMENT)
EDITED = Finding(
    "unit-edited",
    "files",
    "critical",
    "/x",
    "/x was edited",
    "no",
    "always",
    ("/x",),
    "2026",
    "an editor",
    "--fix",
    "files",
)
MISSING = Finding(
    "env-missing", "processes", "critical", "NCCL_ALGO", "NCCL_ALGO is missing", mend="--fix", fix="restart"
)
FOREIGN = Finding("drop-in", "files", "warning", "/y", "a drop-in", mend="rm /y")


def report(*findings: Finding, deployment: Deployment = DEPLOYMENT, **changes: Any) -> dict[str, Any]:
    """What the agent answers on a host where this deployment was applied."""
    release = render(deployment)
    seen = {
        "deployment": deployment.name,
        "applied": {"digest": release.digest, "at": 1_790_000_000, "by": "anna@laptop", "launch": "0"},
        "running": release.digest,
        "service": "active (running)",
        "since": 1_790_000_010,
        "restarts": 0,
        "main": 7,
        "processes": 4,
        "proven": 4,
        "variables": 11,
        "nccl": {"proved": [], "contradicted": [], "silent": [], "versions": ["2.28.9"]},
        "about": {"driver": "580", "packages": "sglang 0.5.23"},
        "watch": {},
        "change": None,
        "manifest": json.loads(release.manifest.text),
        "intent": json.loads(json.dumps(intent(deployment))),
        "findings": [f._asdict() for f in findings],
    }
    return {**seen, **changes}


@dataclass
class Host:
    """A host that gives these answers in turn, or raises one."""

    host: str
    answers: list[Any]
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def call(self, request: Mapping[str, Any], on_event: Any) -> dict[str, Any]:
        self.asked.append(request)
        on_event("asked")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"problems": [], **answer}


def host(name: str, *findings: Finding, **changes: Any) -> Host:
    return Host(name, [{"check": report(*findings, **changes)}])


def look(*hosts: Host, wish: Deployment = DEPLOYMENT) -> drift.Checked:
    return drift.look(wish, render(wish), hosts, lambda _h, _t: None)


OUTCOMES: dict[str, tuple[Host, Deployment, str, int]] = {
    "in sync": (host("a"), DEPLOYMENT, "in sync", 0),
    "pending": (host("a"), WISH, "pending", 3),
    "drift": (host("a", EDITED), DEPLOYMENT, "drift", 4),
    "both": (host("a", EDITED), WISH, "drift and pending", 4),
    "accepted": (host("a", EDITED._replace(muted="known")), DEPLOYMENT, "in sync", 0),
    "info": (host("a", EDITED._replace(severity="info")), DEPLOYMENT, "in sync", 0),
    "not deployed": (
        host("a", applied=None, manifest=None, intent=None, service="", processes=0),
        DEPLOYMENT,
        "not deployed",
        3,
    ),
    "changing": (
        host("a", EDITED, change={"owner": "bob@x", "why": "up", "deployment": "d"}),
        DEPLOYMENT,
        "changing",
        6,
    ),
    "unreachable": (Host("a", [UnreachableError("a", "no route")]), DEPLOYMENT, "unreachable", 5),
    "refused": (Host("a", [HostError("a", "no sudo")]), DEPLOYMENT, "refused", 1),
    "not root": (Host("a", [{"problems": ["not root"]}]), DEPLOYMENT, "refused", 1),
    "our bug": (Host("a", [AgentBugError("Traceback")]), DEPLOYMENT, "failed", 1),
}


@pytest.mark.parametrize(("one", "wish", "outcome", "code"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_outcomes_and_exit_codes(
    one: Host, wish: Deployment, outcome: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = look(Host(one.host, list(one.answers)), wish=wish)
    assert seen.hosts[0].outcome == outcome
    assert seen.exit_code == code
    assert json.loads(json.dumps(verbs.record([seen], seen.exit_code)))["exit_code"] == code
    show_drift.findings([seen])
    show_drift.table([seen])
    told = capsys.readouterr().out
    assert outcome.upper() in told.upper()


def test_pending_names_what_the_configuration_wants(capsys: pytest.CaptureFixture[str]) -> None:
    show_drift.findings([look(host("a"), wish=WISH)])
    assert "~ variable  NCCL_MAX_NCHANNELS: 16 -> 8" in capsys.readouterr().out


def test_a_changed_intent_is_pending_without_a_new_release() -> None:
    wish = compose(["+hw=rtx6000x8", "drift.alert=page.service"])
    assert render(wish).digest == RELEASE.digest
    (one,) = look(host("a"), wish=wish).hosts
    assert [change.name for change in one.pending] == ["alert or metrics"]


WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "the release applied": ("world-mixed", {"applied": {"digest": "0" * 16, "at": 1, "by": "", "launch": ""}}),
    "the release that runs": ("world-running", {"running": "0" * 16}),
    "the version of NCCL": ("world-nccl", {"nccl": {"versions": ["2.30.7"]}}),
    "the driver": ("world-driver", {"about": {"driver": "590", "packages": "sglang 0.5.23"}}),
    "the engine's packages": ("world-engine", {"about": {"driver": "580", "packages": "sglang 0.5.22"}}),
}


@pytest.mark.parametrize("words", WORLDS)
def test_a_mixed_world_is_drift_on_each_of_its_hosts(words: str) -> None:
    id_, changes = WORLDS[words]
    seen = look(host("a"), host("b"), host("c", **changes), Host("d", [UnreachableError("d", "x")]))
    for one in seen.hosts[:3]:
        assert [(f["layer"], f["id"]) for f in one.findings] == [("world", id_)]
        assert words in one.findings[0]["text"]
        assert one.outcome == "drift"
    assert seen.hosts[3].outcome == "unreachable"
    assert seen.exit_code == 5


def test_hosts_that_are_alike_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_drift.findings([look(host("a"), host("b"), host("c", EDITED))])
    told = capsys.readouterr().out
    assert "a, b: in sync" in told
    assert "c: DRIFT" in told


def test_a_finding_is_told_with_values_time_cause_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    show_drift.findings([look(host("a", EDITED, EDITED._replace(subject="/z", muted="accepted until 2027: known")))])
    told = capsys.readouterr().out
    for text in ("[unit-edited]", "is         no", "should be  always", "since      2026", "an editor", "--fix"):
        assert text in told
    assert "accepted until 2027: known" in told


def test_fix_goes_to_hosts_that_have_drifted_and_to_no_other() -> None:
    fixed = {"outcome": "done", "did": ["wrote /x"], "message": "", "evidence": [], "check": report()}
    hosts = [host("a"), Host("b", [{"check": report(EDITED)}, fixed])]
    seen = drift.look(DEPLOYMENT, RELEASE, hosts, lambda _h, _t: None)
    done = drift.fix(DEPLOYMENT, RELEASE, hosts, seen, lambda _h, _t: None, "anna", restart=False)
    assert [one.outcome for one in done.hosts] == ["in sync", "in sync"]
    assert done.hosts[1].did == ("wrote /x",)
    assert [request["verb"] for request in hosts[0].asked] == ["drift"]
    assert [request["verb"] for request in hosts[1].asked] == ["drift", "fix"]
    assert hosts[1].asked[1]["restart"] is False


@pytest.mark.parametrize(
    ("answer", "outcome", "code"),
    [
        ({"outcome": "locked", "check": None}, "locked", 6),
        ({"outcome": "failed", "check": report(MISSING)}, "failed", 1),
        ({"outcome": "done", "check": report(FOREIGN)}, "drift", 4),
    ],
)
def test_what_fix_could_not_do(answer: dict[str, Any], outcome: str, code: int) -> None:
    hosts = [Host("a", [{"check": report(EDITED)}, {"did": [], "message": "why", "evidence": [], **answer}])]
    seen = drift.look(DEPLOYMENT, RELEASE, hosts, lambda _h, _t: None)
    done = drift.fix(DEPLOYMENT, RELEASE, hosts, seen, lambda _h, _t: None, "anna", restart=True)
    assert (done.hosts[0].outcome, done.exit_code) == (outcome, code)


def test_what_needs_a_restart_and_what_can_be_mended_at_all() -> None:
    assert drift.restarts(look(host("a", MISSING), host("b", EDITED))) == ["a"]
    assert drift.mendable(look(host("a", EDITED)))
    assert not drift.mendable(look(host("a", FOREIGN)))
    assert not drift.mendable(look(host("a", EDITED._replace(muted="known"))))


REFUSED = {
    "+drift.accept.a.finding=drop-in": "drift.accept.a.reason is missing",
    "+drift.accept.a={finding:drop-in,reason:x,until:soon}": "is no date",
    "+drift.accept.a={finding:drop-in,reason:'',until:'2027-01-31'}": "reason is empty",
    "+drift.accept.a={finding:Drop_In,reason:x,until:'2027-01-31'}": "is no finding",
    "+drift.accept.a={finding:drop-in,reason:x,until:'2027-01-31',unitl:1}": "there is no key 'unitl'",
    "drift.alert=page": "is no name of a unit",
    "drift.textfile=x.prom": "must be an absolute path that ends in .prom",
    "drift.alrt=x": "did you mean",
}


@pytest.mark.parametrize(("override", "words"), REFUSED.items())
def test_settings_of_the_check_are_refused_with_a_reason(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        render(compose(["+hw=rtx6000x8", override]))
    assert words in str(caught.value)


def test_an_accepted_difference_is_composed_and_sent() -> None:
    accept = "+drift.accept.vendor={finding:'drop-in /etc/x.conf',reason:known,until:'2027-01-31'}"
    (entry,) = drift_request(compose(["+hw=rtx6000x8", accept]))["accept"]
    assert entry == {"finding": "drop-in /etc/x.conf", "reason": "known", "until": "2027-01-31"}
