"""Take a command line apart: verb, names of deployments, overrides and flags, in any order."""

from __future__ import annotations

import argparse
import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from launcher import __version__
from launcher.errors import ConfigError, nearest
from launcher.paths import EXPERIMENT, GROUPS, data_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "up": "compose, render, show the plan, apply, prove; with no host named, render into a folder (default)",
    "plan": "show what up would change; changes nothing anywhere",
    "render": "write the release into a folder; --format adds it as another tool's files, and says what is lost",
    "status": "show what runs on the hosts, one line each; --html FILE writes a page",
    "drift": "compare what runs with what was applied, in every layer; --fix puts that back, never a newer wish",
    "history": "show the generations of a deployment on its hosts",
    "rollback": "rollback NAME [NUMBER]: apply an older generation, the last one of another release if none is named",
    "uninstall": "take a deployment off its hosts, back to what was there before it",
    "check": "apply all rules: what NCCL and the engine would ignore, change, refuse or die of",
    "explain": "explain KEY: its value, what set it, and what of it reaches the server",
    "init": "write a commented deployment file to start from",
    "adopt": "adopt FILE... (or a pipe, or --host H): write conf/deployment/NAME.yaml from commands, units, containers",
    "results": "results [ID]: the sweeps that were run, or what one of them found out; --html FILE writes its report",
    "diff": "diff A B: two points (digest, label or ID:POINT) or two sweeps: settings, figures, versions",
    "promote": "promote POINT [NAME]: write a point with its evidence to conf/deployment/NAME.yaml, then deploy it",
    "bench": "measure one configuration: launch bench bench=allreduce target=process",
    "run": "run this configuration in the foreground, without systemd",
    "completion": "completion bash|zsh|fish: print what the shell reads to complete verbs, names, keys and values",
    "schema": "schema GROUP|experiment: print the JSON Schema of such files, for editors (docs/editor.md)",
}
#: Verbs whose words are points and sweeps, in their order; a label such as nccl.algo=Tree is one of them.
_OF_RESULTS = ("results", "diff", "promote")
#: What is an override there nevertheless.
_SETTINGS = ("sweep", "target", "deployment")
#: What `render` can write beside a release.
FORMATS = ("sbatch", "ansible", "compose", "k8s", "quadlet", "env", "shell")
_EXAMPLES = """\
examples:
  launch +hw=rtx6000x8 +spec=eagle3_2step
  launch plan +hw=rtx6000x8 target=ssh 'target.hosts=[gpu1,gpu2]'
  launch up reference target=ssh 'target.hosts=[gpu1]' --yes
  launch -m nccl.algo=Ring,Tree
  launch -m nccl.algo=Ring,Tree bench=allreduce target=process --resume
  launch -m --search nccl.algo=Ring,Tree nccl.proto=LL,LL128,Simple bench=allreduce target=process

exit codes: 0 done or in sync, 1 failed, 2 usage or configuration refused, 3 changes pending,
  4 drift, 5 host unreachable, 6 host locked by another launch, 7 failed and rolled back, 8 hosts differ
"""


#: Stands for the id of the newest sweep.
NEWEST = "newest"
#: Stands for the number of points that a search chooses when none is given.
HALF = "half"


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line; ``environment`` came past all grammars by ``-e``."""

    verb: str
    names: tuple[str, ...]
    overrides: tuple[str, ...]
    environment: dict[str, str]
    config_dirs: tuple[str, ...]
    allow: tuple[str, ...]
    multirun: bool
    yes: bool
    json: bool
    fix: bool = False
    html: str = ""
    break_lease: bool = False
    follow: bool = False
    # Of a sweep to go on with: its id, the begin of one, or `newest`.
    resume: str = ""
    resume_failed: bool = False
    # What `render` writes beside the release.
    format: str = ""
    # Of a search: how many points it chooses at most, `half`, or nothing.
    search: str = ""
    # Of `adopt`: hosts on which running servers are looked for.
    hosts: tuple[str, ...] = ()

    def with_names(self, *names: str) -> CommandLine:
        """Return the same command line with other names of deployments."""
        return dataclasses.replace(self, names=names)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see launch --help")

    def flags(self) -> list[argparse.Action]:
        return [action for action in self._actions if action.option_strings]


def parse(argv: Sequence[str]) -> CommandLine:
    """Parse arguments.

    Raises:
        ConfigError: an unknown flag or verb, or a malformed ``-e``.
    """
    # Bare, they would take the next word for their value.
    bare_flags = {"--resume": f"--resume={NEWEST}", "--search": f"--search={HALF}"}
    args = _parser().parse_intermixed_args([bare_flags.get(word, word) for word in argv])
    if "" in args.words:
        raise ConfigError("an argument is empty: is a variable of the shell not set?")
    bare = [word for word in args.words if "=" not in word and not word.startswith(("+", "~"))]
    overrides = tuple(word for word in args.words if word not in bare)
    verb, names = (bare[0], bare[1:]) if bare else ("up", [])
    if verb in _OF_RESULTS:
        overrides = tuple(word for word in overrides if re.split(r"[.=]", word.lstrip("+~"))[0] in _SETTINGS)
        names = [word for word in args.words if word not in overrides]
        names.remove(verb)
    if verb not in VERBS:
        raise ConfigError(_no_verb(verb, args.resume))
    if len(set(names)) < len(names) and verb not in _OF_RESULTS:
        what = "a file" if verb == "adopt" else "a deployment"
        raise ConfigError(f"{what} is named twice: {' '.join(names)}")
    environment = dict(_variable(text) for text in args.env)
    if len(environment) < len(args.env):
        raise ConfigError("-e names a variable twice")
    doubles = [name for name in environment if any(re.match(rf"\+*env\.{name}=", word) for word in overrides)]
    if doubles:
        raise ConfigError(f"-e {doubles[0]}=… contradicts env.{doubles[0]}=…: give one of them")
    _check_flags(args, verb)
    if args.limit is not None:
        overrides += (_limit(args.limit),)
    return CommandLine(
        verb=verb,
        names=tuple(names),
        overrides=overrides,
        environment=environment,
        config_dirs=tuple(args.config_dir),
        allow=tuple(args.allow),
        multirun=args.multirun,
        yes=args.yes,
        json=args.json,
        fix=args.fix,
        html=args.html,
        break_lease=args.break_lease,
        follow=args.follow,
        resume=args.resume or (NEWEST if args.resume_failed else ""),
        resume_failed=args.resume_failed,
        format=args.format,
        search=args.search or "",
        hosts=tuple(args.host),
    )


def flags() -> list[argparse.Action]:
    """Return every flag as argparse knows it."""
    return _parser().flags()


def _limit(patterns: str) -> str:
    """Return ``--limit`` as the override that it stands for."""
    if not patterns.strip(" ,"):
        raise ConfigError("--limit is empty: name hosts or groups, as in --limit gpu1,gpu2")
    quoted = patterns.replace("\\", "\\\\").replace("'", "\\'")
    return f"target.limit='{quoted}'"


def _no_verb(word: str, resume: str | None) -> str:
    if resume == NEWEST and re.match(r"20\d+", word):
        return f"to go on with sweep {word}: --resume={word}"
    return (
        f"there is no verb {word!r}{nearest(word, VERBS)}; known: {', '.join(VERBS)}."
        f" The name of a deployment stands behind the verb: launch up {word}"
    )


def _check_flags(args: argparse.Namespace, verb: str) -> None:
    """Refuse flags that go with another verb."""
    if args.fix and verb != "drift":
        raise ConfigError("--fix goes with drift: launch drift --fix")
    if args.follow and verb != "status":
        raise ConfigError("--follow goes with status")
    if args.break_lease and verb != "up":
        raise ConfigError("--break-lease goes with up")
    if args.host and verb != "adopt":
        raise ConfigError("--host goes with adopt; elsewhere: target=ssh 'target.hosts=[HOST]'")
    if args.html and verb not in ("status", "results"):
        raise ConfigError("--html goes with status and results: launch status --html FILE")
    if args.format and verb != "render":
        raise ConfigError("--format goes with render: launch render --format sbatch")
    if args.resume == "":
        raise ConfigError("--resume= is empty: write --resume for the newest sweep, or --resume=ID")
    if (args.resume or args.resume_failed) and not (args.multirun and verb == "up"):
        raise ConfigError("--resume goes with a sweep: launch -m … --resume")
    if args.search is not None:
        _check_search(args, verb)


def _check_search(args: argparse.Namespace, verb: str) -> None:
    if not (args.multirun and verb in ("up", "plan")):
        raise ConfigError("--search goes with a sweep: launch -m --search …")
    if args.search != HALF and not (args.search.isascii() and args.search.isdigit() and int(args.search) > 0):
        raise ConfigError(f"--search={args.search}: write how many points are measured at most, as --search=12")


def _variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(f"-e {text!r}: write it as -e NAME=VALUE")
    return name, value


def _parser() -> _Parser:
    parser = _Parser(
        prog="launch",
        usage="launch [VERB] [NAME...] [OVERRIDES...] [FLAGS]",
        description="Configure, deploy and prove LLM servers: every restart carries the tuned settings.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help=argparse.SUPPRESS)
    parser.add_argument(
        "-e", dest="env", metavar="NAME=VALUE", action="append", default=[], help="set a variable, unchanged"
    )
    parser.add_argument(
        "--config-dir", metavar="DIR", action="append", default=[], help="configuration of your own, before ./conf"
    )
    parser.add_argument(
        "--allow", metavar="RULE", action="append", default=[], help="let a value through that this rule refuses"
    )
    parser.add_argument(
        "--limit",
        metavar="PATTERNS",
        help="only these of the hosts: names, groups, gpu*, !gpu3, &rack1, KEY=VALUE, with commas between",
    )
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="a sweep: one point for each value of comma lists"
    )
    parser.add_argument(
        "--resume",
        metavar="=ID",
        help="with -m: go on with a sweep; without =ID the newest of this deployment and bench",
    )
    parser.add_argument("--resume-failed", action="store_true", help="the same, and measure again what failed")
    parser.add_argument(
        "--search",
        metavar="=POINTS",
        help="with -m: Optuna chooses which points are measured, at most so many; without =POINTS half of them",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="apply without asking")
    parser.add_argument("--fix", action="store_true", help="with drift: put back what was applied last")
    parser.add_argument(
        "--break-lease", action="store_true", help="with up: end another one's change first, which takes it back"
    )
    parser.add_argument("--follow", action="store_true", help="with status: follow a change that is under way first")
    parser.add_argument("--html", metavar="FILE", default="", help="with status or results ID: write one page")
    parser.add_argument(
        "--format", choices=FORMATS, default="", help="with render: a batch script for Slurm, or another tool's files"
    )
    parser.add_argument(
        "--host", metavar="HOST", action="append", default=[], help="with adopt: look for running servers there"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON record")
    parser.add_argument("--version", action="version", version=f"launch {__version__}")
    return parser


def _epilog() -> str:
    verbs = "".join(f"  {name:<11}{text}\n" for name, text in VERBS.items())
    groups = "".join(f"  {group:<11}{', '.join(options)}\n" for group, options in _options().items())
    return f"verbs:\n{verbs}\ngroups and their options:\n{groups}\n{_EXAMPLES}"


def _options() -> dict[str, list[str]]:
    conf = data_dir("conf")
    return {group: sorted(p.stem for p in (conf / group).glob("*.yaml")) for group in (*GROUPS, EXPERIMENT)}
