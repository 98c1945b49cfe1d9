"""Random environments and argument lists through real managers: they arrive unchanged, or are refused."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from launcher.render import encode
from tests.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

SUITES = ("bullseye", "bookworm", "trixie")  # systemd 247, 252, 257
#: Processes of one unit, one after the other: each has its own arguments, all share one environment file.
COMMANDS, VARIABLES = 50, 50

DUMP = "import json, os, sys; open(sys.argv[1], 'a').write(json.dumps([sys.argv[2:], dict(os.environ)]) + '\\n')"

PIECES = [
    *("'", '"', "\\", "$", "%", "`", "#", ";", "|", "&", " ", "  ", "\t", "\n", "=", ",", ":", "^", "~", "*", "?", "!"),
    *(
        "$HOME",
        "${HOME}",
        "$$",
        "%n",
        "%%",
        "%i",
        "${X:-d}",
        "\\n",
        "\\x41",
        "\\\\",
        "\\'",
        "'\"'\"'",
        "#x",
        "; ",
        " ;",
    ),
    *('{"method":"eagle3"}', '{"a": [1, "b c"], "d": null}', "--flag", "--flag=x y", "-", "@", "+", "[a,b]", "$(id)"),
    *("ü", "→", "日本", "\U0001f680", "\u00a0", "\u2028", "a", "Z", "0", "1e3", "on", "null", "x" * 100),
]
BAD = ["\0", "\r", "\x1b", "\x7f", "\udcff", "\ufffe", "\ufdd0", "\x01"]


def text(source: random.Random) -> str:
    """Return a hostile value; one in fifty holds what no unit can carry."""
    pieces = source.choices(PIECES, k=source.randint(0, 8))
    if source.random() < 0.02:
        pieces.insert(0, source.choice(BAD))
    return "".join(pieces)


@pytest.fixture(scope="module", params=SUITES)
def manager(request: pytest.FixtureRequest) -> Iterator[FleetHost]:
    with Fleet.boot(1, suite=request.param) as fleet:
        yield fleet.hosts[0]


def trial(host: FleetHost, seed: int) -> tuple[int, int]:
    """Send one unit with its environment through the manager; return how many values arrived and were refused."""
    source = random.Random(seed)
    env = {f"V{i}": text(source) for i in range(VARIABLES)}
    lists = [[text(source) for _ in range(source.randint(1, 6))] for _ in range(COMMANDS)]
    good_env = {name: value for name, value in env.items() if not encode.check_environment({name: value})}
    good_lists = [argv for argv in lists if not encode.check_arguments(argv)]
    for value in set(env.values()) - set(good_env.values()):
        assert any(bad in value for bad in BAD), value  # nothing is refused that could have arrived
    for argv in lists:
        assert argv in good_lists or any(bad in word for word in argv for bad in BAD), argv
    unit = [
        "[Service]\nType=oneshot\nEnvironmentFile=/opt/values/env",
        *(
            f"ExecStart=/usr/bin/python3 -I -S -X utf8 /opt/values/dump.py /opt/values/out {words(argv)}"
            for argv in good_lists
        ),
    ]
    folder = host.root / "opt" / "values"
    folder.mkdir(exist_ok=True)
    (folder / "dump.py").write_text(DUMP)
    (folder / "env").write_text(encode.environment_file(good_env), encoding="utf-8")
    (folder / "out").write_text("")
    (host.root / "etc/systemd/system/values.service").write_text("\n".join(unit) + "\n", encoding="utf-8")
    host.run("systemctl daemon-reload && systemctl start values.service", timeout=120)
    seen = [json.loads(line) for line in (folder / "out").read_text().splitlines()]
    assert [argv for argv, _ in seen] == good_lists
    for _, process_env in seen:
        assert {name: process_env.get(name) for name in good_env} == good_env
    return len(good_env) + len(good_lists), len(env) - len(good_env) + len(lists) - len(good_lists)


def words(argv: list[str]) -> str:
    return " ".join(map(encode.argument, argv))


def test_values_arrive_unchanged_or_are_refused(manager: FleetHost) -> None:
    arrived, refused = map(sum, zip(*(trial(manager, seed) for seed in range(3)), strict=True))
    assert arrived > 200
    assert refused > 0


@pytest.mark.soak
def test_ten_thousand_values(manager: FleetHost) -> None:
    arrived = sum(trial(manager, 1000 + seed)[0] for seed in range(105))
    assert arrived >= 10_000
