"""Print docs/rules.md from the rules: ``python -m launcher.catalogue.rules_table > docs/rules.md``."""

from __future__ import annotations

from launcher.catalogue.rules import all_rules

_HEAD = """\
# Rules

What NCCL and the engines do with settings that look right. `launch check` applies all rules; every other verb applies
them too, stops at a refusal and tells the warnings. A rule refuses only what is known to happen from a source line, a
log or a run. `--allow RULE` lets a refused value through; the manifest on the host says so.

This page is generated from the rules themselves (`python -m launcher.catalogue.rules_table`). Values of single NCCL
variables are checked as well, against `launcher/catalogue/nccl.csv`; flags, draft models and tensor parallelism that an
engine could not start with are refused when the release is rendered.

| rule | severity | what happens | source |
| --- | --- | --- | --- |
"""


def table() -> str:
    """Return the page."""
    rows = (f"| `{r.id}` | {r.severity} | {_cell(r.explanation)} | {_cell(r.source)} |\n" for r in all_rules())
    return _HEAD + "".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(table(), end="")  # noqa: T201 - a program of its own
