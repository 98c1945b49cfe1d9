"""The report of a sweep: one web page that needs nothing else, and its numbers for other programs."""

from __future__ import annotations

import re
import time
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from launcher.paths import data_dir

from . import closing, disk, report_plots, report_rates, report_rows, report_speculation, report_view, report_words
from .figures import counted, figure, unit
from .tables import ORDER, overall, ranked, summary

if TYPE_CHECKING:
    from pathlib import Path

    import jinja2

    from .record import Judgement, Sweep

#: What shows as nothing, or changes the order of what stands around it.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def write(folder: Path, sweep: Sweep, judgement: Judgement) -> list[Path]:
    """Write the report into a folder, each file in place of an older one, and return the paths; the page is the first.

    Raises:
        LaunchError: no space, no permission, no folder.
    """
    texts = {
        "report.html": page(sweep, judgement),
        "results.csv": report_rows.results_csv(sweep),
        "results.jsonl": report_rows.results_jsonl(sweep),
        "verdicts.csv": report_rows.verdicts_csv(sweep, judgement),
    }
    for name, text in texts.items():
        disk.put(folder / name, text)
    return [folder / name for name in texts]


def page(sweep: Sweep, judgement: Judgement) -> str:
    """Return the whole page as HTML text."""
    points = ranked(sweep, judgement)
    others = [point for point in points if point.digest != sweep.baseline.digest]
    tally = Counter(overall(sweep, judgement, point) for point in others)
    answer, *more = [*summary(sweep, judgement), *closing.told(sweep)]
    leading = next((word for word in ("better", "trade", "no difference") if tally[word]), "undecided")
    return _template().render(
        sweep=sweep,
        judgement=judgement,
        answer=answer,
        more=more,
        style=report_view.LOOKS[leading][0],
        tally=[(word, tally[word]) for word in ORDER if tally[word]],
        when=_when(sweep),
        rows=report_view.rows(sweep, judgement),
        anchors={point.digest: f"p{number}" for number, point in enumerate(points)},
        panels=report_plots.forest(sweep, judgement, others),
        tracks=report_plots.timeline(sweep, judgement),
        height=report_plots.HEIGHT,
        rates=report_rates.rates(sweep, judgement),
        rates_height=report_rates.HEIGHT,
        speculation=report_speculation.speculation(sweep, judgement),
        levels=report_view.levels(sweep, points),
        production=[one for one in closing.found(sweep) if one.rows],
        effects=report_view.effects(sweep, judgement),
        proofs=[proof for proof in (report_view.proof_of(sweep, point) for point in points) if proof.variables],
        failures=report_view.failures(sweep),
        invalid=report_view.invalid(sweep),
        facts=report_words.facts(sweep.facts),
        method=report_words.method(sweep),
        labels={point.digest: point.label for point in points},
        looks=report_view.LOOKS,
        unknown=report_view.UNKNOWN,
    )


def _when(sweep: Sweep) -> tuple[str, str, str]:
    """Return begin, end and length of all trials; empty without any."""
    if not sweep.trials:
        return "", "", ""
    begin = min(trial.at for trial in sweep.trials)
    end = max(trial.at + trial.seconds for trial in sweep.trials)
    (day, *from_), (last, *until) = (moment(one).split() for one in (begin, end))
    told = " ".join(until if day == last else (last, *until))
    return f"{day} {from_[0]}", told, report_words.lasted(end - begin)


def moment(seconds: float) -> str:
    """Return a time of the epoch as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def visible(value: Any) -> Any:  # noqa: ANN401 - whatever a template shows
    """Return a text with every invisible character written as an escape."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), value)


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=visible,
    )
    environment.filters |= {
        "counted": counted,
        "figure": figure,
        "moment": moment,
        "lasted": report_words.lasted,
        "unit": unit,
    }
    return environment.get_template("report.html.j2")
