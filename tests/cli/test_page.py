"""The page of ``launch status``: its words, and what a real browser makes of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from launcher.cli import page as subject
from tests import browser

if TYPE_CHECKING:
    from pathlib import Path

APPLIED, OTHER, WANTED = "a" * 16, "b" * 16, "c" * 16
AT = "2026-11-29T21:00:00Z"
LONG = "x" * 200
#: Each would leave a mark on the window around it, or an element that this page never has.
ATTACK = (
    """'"></code></style></title></pre></details><script>top.hacked=1</script><img src=x onerror="top.hacked=1">"""
    """<svg onload=top.hacked=1><a href="javascript:top.hacked=1">{{ 7*7 }}{% raw %}&lt;b&gt;"""
)
#: Phones, tablet, both sides of where the look changes, and a desk.
WIDTHS = [320, 360, 700, 895, 900, 1160, 1280]


def finding(**fields: Any) -> dict[str, Any]:
    return {
        "id": "file-changed", "layer": "files", "severity": "critical", "subject": "/etc/x", "text": "the file differs",
        "is_": "", "should": "", "where": [], "since": "", "cause": "", "mend": "", "fix": "", "muted": "", **fields,
    }  # fmt: skip


def check(**fields: Any) -> dict[str, Any]:
    return {
        "applied": {"digest": APPLIED, "at": AT, "by": "anna@laptop", "launch": "0.1.0"}, "running": APPLIED,
        "service": "active (running)", "since": AT, "restarts": 0, "main": 715, "proven": 4, "processes": 4,
        "variables": 11, "nccl": None, "findings": [], **fields,
    }  # fmt: skip


def host(name: str, outcome: str = "in sync", **fields: Any) -> dict[str, Any]:
    return {"host": name, "outcome": outcome, "message": "", "evidence": [], "check": check(), **fields}


def record(*hosts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    one = {"deployment": "kimi", "digest": APPLIED, "exit_code": 0, "hosts": list(hosts), **fields}
    return {"exit_code": 0, "deployments": [one]}


def text_of(html: str) -> str:
    """Return the words of a page, without its elements."""
    return " ".join(re.sub(r"<[^>]+>", " ", html.partition("<body>")[2]).split())


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([], "No host was looked at"),
        ([("a", "in sync"), ("b", "in sync")], "Everything runs what was applied"),
        ([("a", "drift"), *[(f"h{i}", "in sync") for i in range(7)]], "1 of 8 hosts has drifted"),
        ([("a", "drift"), ("b", "drift and pending"), ("c", "in sync")],
         "2 of 3 hosts have drifted and 1 has a change pending"),
        ([("a", "drift"), ("b", "drift")], "All 2 hosts have drifted"),
        ([("gpu1", "drift")], "gpu1 has drifted"),
        ([("gpu1", "drift and pending")], "gpu1 has drifted and has a change pending"),
        ([("gpu1", "pending")], "Everything runs what was applied; gpu1 has a change pending"),
        ([("A", "pending"), ("A", "pending")], "Everything runs what was applied; A has a change pending"),
        ([("a", "pending"), ("b", "in sync")], "Everything runs what was applied; 1 of 2 hosts has a change pending"),
        ([("a", "pending"), ("b", "pending")], "Everything runs what was applied; all 2 hosts have a change pending"),
        ([("a", "not deployed"), ("b", "in sync")], "1 of 2 hosts lacks a deployment"),
        ([("a", "pending"), ("b", "unreachable"), ("c", "refused"), ("d", "drift")],
         "1 of 4 hosts is unreachable, 1 was refused, 1 has drifted and 1 has a change pending"),
        ([("a", "drift"), ("a", "in sync"), ("b", "in sync")], "1 of 2 hosts has drifted"),
        ([("a", "failed"), ("b", "drift")], "1 of 2 hosts could not be checked or mended and 1 has drifted"),
        ([("a", "locked"), ("b", "in sync")], "1 of 2 hosts is locked"),
    ],
)  # fmt: skip
def test_the_headline(outcomes: list[tuple[str, str]], words: str) -> None:
    assert subject.headline(outcomes) == words


@pytest.mark.parametrize(
    ("wanted", "applied", "running", "told"),
    [
        (APPLIED, APPLIED, APPLIED, [("applied and running", APPLIED, False)]),
        (WANTED, APPLIED, APPLIED, [("applied and running", APPLIED, False), ("configured", WANTED, False)]),
        (APPLIED, APPLIED, OTHER, [("applied", APPLIED, False), ("running", OTHER, True)]),
        (APPLIED, APPLIED, "", [("applied", APPLIED, False), ("running", "", True)]),
        (WANTED, APPLIED, WANTED,
         [("applied", APPLIED, False), ("running", WANTED, True), ("configured", WANTED, False)]),
        (WANTED, None, "", [("applied or running", "", False), ("configured", WANTED, False)]),
        (WANTED, None, OTHER, [("applied", "", False), ("running", OTHER, True), ("configured", WANTED, False)]),
    ],
)  # fmt: skip
def test_the_releases_of_a_host(
    wanted: str, applied: str | None, running: str, told: list[tuple[str, str, bool]]
) -> None:
    of_host = check(applied={"digest": applied} if applied else None, running=running)
    assert subject.releases(wanted, of_host) == told


def test_an_unseen_host_has_no_releases() -> None:
    assert subject.releases(WANTED, None) == []


def test_findings_are_grouped_by_layer_and_the_gravest_comes_first() -> None:
    given = [
        finding(layer="strays", text="1"), finding(layer="loaded", severity="info", text="2"),
        finding(layer="loaded", severity="critical", text="3"), finding(layer="of tomorrow", text="4"),
        finding(layer="loaded", severity="of tomorrow", text="5"), finding(layer="intent", text="6"),
    ]  # fmt: skip
    told = [(title, [f["text"] for f in group]) for title, group in subject.by_layer(given)]
    assert told == [
        ("Intent", ["6"]), ("Loaded by systemd", ["3", "2", "5"]), ("Strays", ["1"]), ("Of tomorrow", ["4"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("severities", "muted", "words"),
    [
        ([], 0, "No findings"),
        ([], 2, "No findings, 2 more accepted"),
        (["info"], 0, "1 finding (1 info)"),
        (["info", "critical", "new", "critical"], 1, "4 findings (2 critical, 1 info, 1 new), 1 more accepted"),
    ],
)
def test_the_summary(severities: list[str], muted: int, words: str) -> None:
    assert subject.summary([finding(severity=severity) for severity in severities], muted) == words


@pytest.mark.parametrize(
    ("mend", "marked"),
    [
        ("", ""),
        ("launch drift --fix", "[launch drift --fix]"),
        ("launch drift kimi --fix", "[launch drift kimi --fix]"),
        ("launch drift --fix (asks before it restarts)", "[launch drift --fix] (asks before it restarts)"),
        ("launch up writes it; nothing is restarted", "[launch up] writes it; nothing is restarted"),
        ("launch up nccl.algo='Ring,Tree' +hw=x.", "[launch up nccl.algo='Ring,Tree' +hw=x]."),
        ("systemctl cat shows it, then launch up", "[systemctl cat] shows it, then [launch up]"),
        ("systemctl unset-environment NCCL_ALGO", "[systemctl unset-environment NCCL_ALGO]"),
        ("sudo sysctl kernel.numa_balancing=0", "[sudo sysctl kernel.numa_balancing=0]"),
        ("chmod 600 /etc/launch/a.env", "[chmod 600 /etc/launch/a.env]"),
        ("look at /etc/launch/up", "look at /etc/launch/up"),
        ("kill the process", "kill the process"),
    ],
)
def test_commands_in_a_remedy(mend: str, marked: str) -> None:
    assert "".join(f"[{words}]" if typed else words for words, typed in subject.remedy(mend)) == marked


@pytest.mark.parametrize(
    ("time", "told"),
    [
        (AT, "2026-11-29 21:00:00 UTC"),
        ("2026-11-29T21:00:00.123+00:00", "2026-11-29 21:00:00 UTC"),
        ("2026-11-29T21:00:00+02:00", "2026-11-29T21:00:00+02:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_times(time: str, told: str) -> None:
    assert subject.moment(time) == told


def test_a_host_in_words() -> None:
    nccl = {"proved": ["NCCL_ALGO"], "contradicted": [], "silent": [], "versions": ["2.28.9"]}
    found = finding(is_="Ring", should="Tree", where=["process 7 (a)"], since=AT, cause="an edit", mend="launch up")
    seen = check(running=OTHER, proven=3, restarts=2, nccl=nccl, findings=[found], since=0)
    told = text_of(subject.page(record(host("gpu1", "drift", check=seen), host("gpu2")), AT))
    for words in (
        "1 of 2 hosts has drifted", "A snapshot of 2026-11-29 21:00:00 UTC", "✗ 1 drift", "✓ 1 in sync",
        "configured release " + APPLIED, f"{APPLIED} applied {OTHER} running", "3 of 4", "active (running)",
        "Files ✗ critical the file differs is Ring should be Tree Where process 7 (a)",
        "Since 2026-11-29 21:00:00 UTC Likely cause an edit Remedy launch up", "file-changed /etc/x",
        "log version 2.28.9: 1 variables proved, 0 contradicted , 0 not told", "Hosts without findings gpu2",
        "by anna@laptop, launch 0.1.0",
    ):  # fmt: skip
        assert words in told
    assert "no drift" not in told


def test_the_hosts_that_need_a_look_come_first() -> None:
    unseen = host("gpu3", "unreachable", check=None, message="timed out", evidence=["ssh said so"])
    given = [host("gpu1"), host("gpu2", "pending"), unseen, host("gpu4", "drift")]
    assert [row.host for row in subject.rows(record(*given)["deployments"][0])] == ["gpu3", "gpu4", "gpu2", "gpu1"]
    told = text_of(subject.page(record(*given), AT))
    assert "gpu3 ? unreachable timed out gpu4" in told
    assert "Findings gpu3 kimi ? unreachable timed out Evidence (1 line) ssh said so gpu4" in told


def test_accepted_and_uncounted_findings_are_told_apart() -> None:
    found = [
        finding(text="one", muted="accepted until 2026-12-31: known"), finding(text="two", severity="info"),
        finding(text="three", severity="unknown"), finding(text="four", severity="unknown", layer="host"),
    ]  # fmt: skip
    told = text_of(subject.page(record(host("gpu1", check=check(findings=found))), AT))
    accepted = told.partition("Accepted, not counted")[2]
    assert "one accepted until 2026-12-31: known" in accepted
    assert "no drift" not in accepted
    assert [told.partition(word)[2].split("/etc/x")[1].startswith(" · no drift") for word in ("two", "three")] == [
        True, False,
    ]  # fmt: skip
    assert told.count("no drift") == 2


def test_what_is_pending_is_told() -> None:
    change = {"kind": "variable", "name": "NCCL_ALGO", "old": "Ring", "new": "Tree"}
    given = host("gpu1", "pending", pending=[change, {**change, "name": "NCCL_PROTO", "old": None}])
    told = text_of(subject.page(record(given, digest=WANTED), AT))
    assert "no drift variable NCCL_ALGO : Ring → Tree variable NCCL_PROTO : none → Tree" in told


def test_what_cannot_be_seen_is_written_out() -> None:
    found = finding(is_="a\x1b[1m\u202eb\udcff\0", text="two\nlines")
    told = subject.page(record(host("gpu1", check=check(findings=[found]))), AT)
    assert r"a\x1b[1m\u202eb\udcff\x00" in told
    told.encode("utf-8")


def test_nothing_is_fetched_and_no_script_is_there() -> None:
    told = subject.page(record(host("gpu1", check=check(findings=[finding()]))), AT)
    assert "default-src 'none'" in told
    assert not re.search(r"<script|<link|<img|@import|url\(|https?:", told)


def test_no_deployment_at_all() -> None:
    assert "No host was looked at" in subject.page({"exit_code": 0, "deployments": []}, AT)


def nasty() -> dict[str, Any]:
    """Return 30 hosts and 40 findings, with an attack and something long in every text."""
    bad = ATTACK + LONG
    found = [
        {key: f"{bad}{key}{n}" for key in finding()}
        | {"layer": ("files", "host", ATTACK)[n % 3], "severity": ("critical", "info", "warning", ATTACK)[n % 4]}
        | {"where": [f"{bad}{i}" for i in range(5)], "muted": f"{bad}muted{n}" if n % 5 == 0 else ""}
        | {"mend": f"launch up {LONG}={n} {bad}"}
        for n in range(40)
    ]
    nccl = dict.fromkeys(("proved", "contradicted", "silent", "versions"), [bad] * 8)
    applied = dict.fromkeys(("digest", "at", "by", "launch"), bad)
    seen = check(applied=applied, nccl=nccl, running=bad + "r", service=bad, since=bad, restarts=10**12, proven=10**12)
    outcomes = [*subject.OUTCOMES, ATTACK]
    hosts = [
        host(
            f"{bad}{n}",
            outcomes[n % len(outcomes)],
            message=bad,
            evidence=[bad] * (n % 9),
            check=seen if n % 8 else None,
        )
        for n in range(29)
    ]
    change = {"kind": "variable", "name": bad, "old": bad, "new": None}
    hosts.append(host(bad, "drift and pending", check={**seen, "findings": found}, pending=[change]))
    return record(*hosts, deployment=bad, digest=bad)


MEASURE = """
const root = document.documentElement, texts = __TEXTS__;
const shown = [...document.querySelectorAll(".finding .text strong, .why")].filter(
  e => e.checkVisibility({opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true})
    && e.getBoundingClientRect().width > 20 && e.getBoundingClientRect().right <= window.innerWidth
).map(e => e.textContent);
const names = new Set([...document.body.querySelectorAll("*")].map(e => e.localName));
const linear = c => c.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
const light = c => linear(c).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const rgb = text => text.match(/[\\d.]+/g).map(Number);
const behind = e => { const c = rgb(window.getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  return e.parentElement ? behind(e.parentElement) : [255, 255, 255]; };
const contrast = e => { const [a, b] = [light(rgb(window.getComputedStyle(e).color).slice(0, 3)), light(behind(e))]
  .sort((a, b) => b - a); return (a + .05) / (b + .05); };
const written = [...document.body.querySelectorAll("*")].filter(
  e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility());
return {
  innerWidth: window.innerWidth, scrollWidth: root.scrollWidth, clientWidth: root.clientWidth,
  missing: texts.filter(t => !shown.includes(t)),
  hacked: Boolean(window.top.hacked || window.hacked), foreign: ["script", "img", "svg", "b"].filter(n =>
    n === "b" ? document.querySelector("dd b, code b") : names.has(n)),
  handlers: [...document.querySelectorAll("*")].flatMap(e => [...e.attributes]).filter(
    a => a.name.startsWith("on") || a.value.startsWith("javascript:")).map(a => a.name),
  pale: written.filter(e => contrast(e) < 4.5).map(e => [e.localName, e.className, contrast(e)]),
  dark: light(behind(document.body)) < .2,
  unlabelled: [...document.querySelectorAll("section")].filter(
    e => !document.getElementById(e.getAttribute("aria-labelledby"))?.textContent.trim()).length,
  loose: [...document.querySelectorAll("a")].filter(
    a => !document.getElementById((a.getAttribute("href") ?? "#").slice(1))).length,
};
"""


def without_policy(text: str) -> str:
    """Return a page without its ban on scripts, so that only its escaping protects it."""
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert bare != text
    return bare


def script(given: dict[str, Any]) -> str:
    """Return the measuring script for a record."""
    found = [f for d in given["deployments"] for h in d["hosts"] if h["check"] for f in h["check"]["findings"]]
    texts = [f["text"] for f in found] + [f["muted"] for f in found if f["muted"]]
    # "</" would end the script element around it.
    return MEASURE.replace("__TEXTS__", json.dumps(texts).replace("<", "\\u003c"))


def ordinary() -> dict[str, Any]:
    """Return hosts in every state, with words that are kept together."""
    seen = check(
        running=OTHER, proven=100, processes=128, restarts=12, findings=[finding(since=AT, is_="a", should="b")]
    )
    hosts = [host(f"gpu{n}.rack4.example.net", outcome, check=seen) for n, outcome in enumerate(subject.OUTCOMES)]
    return record(*hosts, digest=WANTED)


@pytest.mark.parametrize("scheme", [browser.LIGHT, browser.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("given", [nasty(), ordinary()], ids=["nasty", "ordinary"])
def test_in_a_browser(given: dict[str, Any], scheme: int, tmp_path: Path) -> None:
    html = without_policy(subject.page(given, AT))
    told = browser.measure(html, WIDTHS, script(given), tmp_path, scheme)
    assert [seen["innerWidth"] for seen in told] == WIDTHS
    for seen in told:
        assert seen["scrollWidth"] <= seen["clientWidth"] <= seen["innerWidth"]
        assert seen["dark"] == (scheme == browser.DARK)
        assert not seen["hacked"]
        for fault in ("missing", "foreign", "handlers", "pale", "unlabelled", "loose"):
            assert not seen[fault], fault


def test_the_browser_would_notice_an_attack(tmp_path: Path) -> None:
    (seen,) = browser.measure(f"<!doctype html><body>{ATTACK}", WIDTHS[:1], script(record()), tmp_path)
    assert seen["hacked"]
    assert {"script", "img"} <= set(seen["foreign"])
    assert seen["handlers"]
