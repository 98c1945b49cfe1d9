"""What ``launch status`` found as one web page that needs nothing else, from ``templates/status.html.j2``."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from launcher.agent.findings import LAYERS, SEVERITIES, counts, iso
from launcher.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import jinja2

#: Outcomes, the gravest first: style, sign, and what a headline says of one host and of several.
OUTCOMES = {
    "unreachable": ("lost", "?", "is unreachable", "are unreachable"),
    "refused": ("lost", "!", "was refused", "were refused"),
    "failed": ("bad", "!", "could not be checked or mended", "could not be checked or mended"),
    "drift and pending": ("bad", "✗", "", ""),
    "drift": ("bad", "✗", "has drifted", "have drifted"),
    "not deployed": ("wait", "–", "lacks a deployment", "lack a deployment"),  # noqa: RUF001 - a sign
    "pending": ("wait", "→", "has a change pending", "have a change pending"),
    "in sync": ("good", "✓", "", ""),
}
#: Style and sign of each severity.
MARKS = {"critical": ("bad", "✗"), "warning": ("warn", "!"), "unknown": ("lost", "?"), "info": ("calm", "i")}
#: Titles of layers that are no plain word.
TITLES = {"loaded": "Loaded by systemd"}
_NO_FINDING = {"id": "", "layer": "", "severity": "", "subject": "", "text": "", "is_": "", "should": "", "where": ()}
_NO_FINDING |= {"since": "", "cause": "", "mend": "", "fix": "", "muted": ""}
#: What belongs to a command in a remedy and is no word of the sentence around it.
_WORDS = (
    r"--?\w(?:[\w=/.-]*\w)?",  # an option
    r"[\w.-]+(?= --?\w)",  # a name before one
    r"'[^']*'",
    r"(?=\S*[A-Z\d/._=@])(?:[^\s,;)]|[,;](?=\S))*[^\s,;.:)]",  # what looks like a path, a setting or a constant
)
_COMMAND = re.compile(
    r"(?<![\w/.-])(?:sudo )?(?:launch [a-z]+|systemctl [a-z-]+"
    r"|(?:journalctl|nvidia-smi|chmod|chown|kill|rm|sysctl)(?= [-/\d]| \S+=))"
    rf"(?: (?:{'|'.join(_WORDS)}))*"
)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(?:Z|\+00:00)")
#: What shows as nothing, or changes the order of what stands around it.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Row:
    """One host of one deployment, with what the page says of it in words."""

    anchor: str
    deployment: str
    host: str
    outcome: str
    style: str
    sign: str
    message: str
    evidence: Sequence[str]
    check: Mapping[str, Any] | None
    pending: Sequence[Mapping[str, Any]]
    releases: Sequence[tuple[str, str, bool]]
    layers: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]
    muted: Sequence[Mapping[str, Any]]

    @property
    def telling(self) -> bool:
        """Whether there is more to say than that all is well."""
        nccl = self.check and self.check["nccl"]
        return bool(
            self.layers or self.muted or self.evidence or self.outcome != "in sync" or (nccl and nccl["contradicted"])
        )


def page(record: Mapping[str, Any], written_at: str) -> str:
    """Return the whole page as HTML text, without lone surrogates.

    Args:
        record: what ``launch status --json`` prints.
        written_at: when that was found, as ISO time.
    """
    clean = _visible(record)
    groups = [(deployment, rows(deployment, i)) for i, deployment in enumerate(clean["deployments"])]
    everything = [row for _, group in groups for row in group]
    ranked = sorted(everything, key=_gravity)
    found = [finding for row in everything for _, findings in row.layers for finding in findings]
    return _template().render(
        headline=headline([(row.host, row.outcome) for row in everything]),
        style=ranked[0].style if ranked else "wait",
        tally=[(outcome, looks(outcome), n) for outcome, n in Counter(row.outcome for row in ranked).items()],
        summary=summary(found, sum(len(row.muted) for row in everything)),
        written_at=_visible(written_at),
        exit_code=clean["exit_code"],
        groups=groups,
        telling=[row for row in ranked if row.telling],
        quiet=[row for row in ranked if not row.telling],
        counts=counts,
        marks=MARKS,
    )


def rows(deployment: Mapping[str, Any], number: int = 0) -> list[Row]:
    """Return the hosts of a deployment, those first that need a look."""
    made = [_row(deployment, host, f"d{number}h{i}") for i, host in enumerate(deployment["hosts"])]
    return sorted(made, key=_gravity)


def _row(deployment: Mapping[str, Any], host: Mapping[str, Any], anchor: str) -> Row:
    check = host["check"]
    if check and not isinstance(check["since"], str):
        check = {**check, "since": iso(check["since"])}
    findings = [{**_NO_FINDING, **finding} for finding in check["findings"]] if check else []
    style, sign = looks(host["outcome"])
    return Row(
        anchor=anchor,
        deployment=deployment["deployment"],
        host=host["host"],
        outcome=host["outcome"],
        style=style,
        sign=sign,
        message=host["message"],
        evidence=host["evidence"],
        check=check,
        pending=host.get("pending", ()),
        releases=releases(deployment["digest"], check),
        layers=by_layer(finding for finding in findings if not finding["muted"]),
        muted=[finding for _, group in by_layer(f for f in findings if f["muted"]) for finding in group],
    )


def _gravity(row: Row) -> int:
    return _place(row.outcome, tuple(OUTCOMES), unknown=0)


def looks(outcome: str) -> tuple[str, str]:
    """Return style and sign of an outcome; one that this page does not know is not shown as a good one."""
    style, sign, *_ = OUTCOMES.get(outcome, OUTCOMES["unreachable"])
    return style, sign


def headline(outcomes: Sequence[tuple[str, str]]) -> str:
    """Return the overall state in words.

    Args:
        outcomes: host and outcome of each deployment on it; a host counts once for each state it is in.
    """
    hosts = {host for host, _ in outcomes}
    if not hosts:
        return "No host was looked at"
    states = {state: words for state, (_, _, *words) in OUTCOMES.items() if state != "drift and pending"}
    states |= {outcome: [f"is {outcome}", f"are {outcome}"] for _, outcome in outcomes if outcome not in OUTCOMES}
    numbers = {
        state: len({host for host, outcome in outcomes if state in (outcome, *outcome.split(" and "))})
        for state in states
    }
    told = [(n, states[state][n > 1]) for state, n in numbers.items() if n and state != "in sync"]
    well = "Everything runs what was applied"
    if not told:
        return well
    whole = f"of {len(hosts)} hosts" if len(hosts) > 1 else ""
    if len(hosts) == 1:
        text = f"{next(iter(hosts))} {_listed([words for _, words in told])}"
    else:
        (first, words), *others = told
        begin = f"All {first} hosts" if first == len(hosts) else f"{first} {whole}"
        text = _listed([f"{begin} {words}", *(f"{n} {words}" for n, words in others)])
    only_pending = numbers["pending"] and len(told) == 1
    return f"{well}; {text[0].lower() + text[1:] if whole else text}" if only_pending else text


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def summary(findings: Sequence[Mapping[str, Any]], muted: int) -> str:
    """Return how many findings there are, by severity."""
    numbers = Counter(finding["severity"] for finding in findings)
    ranks = sorted(numbers, key=lambda severity: _place(severity, SEVERITIES))
    text = f"{len(findings) or 'No'} finding{'' if len(findings) == 1 else 's'}"
    if ranks:
        text += f" ({', '.join(f'{numbers[severity]} {severity}' for severity in ranks)})"
    return text + (f", {muted} more accepted" if muted else "")


def releases(wanted: str, check: Mapping[str, Any] | None) -> list[tuple[str, str, bool]]:
    """Return the releases of a host: what each is there, its digest, and whether it runs in place of the applied one.

    Args:
        wanted: what the configuration asks for; told where it is not what was applied.
        check: of the host.
    """
    if check is None:
        return []
    applied, running = check["applied"]["digest"] if check["applied"] else "", check["running"]
    if applied == running:
        told = [("applied and running" if applied else "applied or running", applied, False)]
    else:
        told = [("applied", applied, False), ("running", running, True)]
    return told if wanted == applied else [*told, ("configured", wanted, False)]


def by_layer(findings: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return findings under the titles of their layers, the gravest first within each."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for finding in sorted(
        findings,
        key=lambda f: (_place(f["layer"], LAYERS), _place(f["severity"], SEVERITIES), f["id"], f["subject"]),
    ):
        layer = finding["layer"]
        groups.setdefault(TITLES.get(layer, layer.capitalize()), []).append(finding)
    return list(groups.items())


def _place(word: str, order: Sequence[str], unknown: int | None = None) -> int:
    if word in order:
        return order.index(word)
    return len(order) if unknown is None else unknown


def remedy(mend: str) -> list[tuple[str, bool]]:
    """Return a remedy in pieces, and whether each can be typed as it is rather than read."""
    pieces, end = [], 0
    for found in _COMMAND.finditer(mend):
        pieces += [(mend[end : found.start()], False), (found[0], True)]
        end = found.end()
    return [piece for piece in [*pieces, (mend[end:], False)] if piece[0]]


def moment(time: str) -> str:
    """Return an ISO time as people read it; what is none stays as it is."""
    found = _TIME.fullmatch(time)
    return f"{found[1]} {found[2]} UTC" if found else time


def _visible(data: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return data with every invisible character in its texts written as an escape."""
    if isinstance(data, str):
        return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), data)
    if isinstance(data, dict):
        return {key: _visible(value) for key, value in data.items()}
    return [_visible(value) for value in data] if isinstance(data, (list, tuple)) else data


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters["moment"] = moment
    environment.filters["remedy"] = remedy
    return environment.get_template("status.html.j2")
