"""Secrets reach the server and nothing else: a search of everything else finds none."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.system.tool import REFERENCE, UNIT, assert_tuned, journal, look

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

TOKEN, KEY = "hf_Zq8TokenNobodyMaySee", "sk-Xw3KeyNobodyMaySee\"'\\$%"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    key = tmp_path / "key"
    key.write_text(KEY)
    return [*REFERENCE, f"secrets.env.HF_TOKEN=file:{token}", f"secrets.args.api_key='command:cat {key}'"]


def test_secrets_reach_the_server_and_nothing_else(launch: Launch, host: FleetHost, words: list[str]) -> None:
    said = launch("plan", *words, check=3)
    done = launch("up", *words, "--yes")
    record = launch("up", *words, "--json")
    seen = look(host)
    assert_tuned(seen)
    for process in seen["processes"].values():
        assert process["env"]["HF_TOKEN"] == TOKEN
        assert not any(secret in word for word in process["title"] for secret in (TOKEN, KEY))
    answer = host.run(
        f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:8000/v1/models || python3 -c '{FETCH}'"
    )
    assert "401" in answer.stdout
    # Everything that people and machines see.
    for text in (said, done, record):
        assert_nothing(text.stdout + text.stderr)
    assert_nothing(journal(host))
    assert_nothing(
        host.run("journalctl --no-pager -o cat; systemctl cat 'launch-*'; ps auxww; systemctl show-environment").stdout
    )
    found = host.run(
        "grep -rlE 'NobodyMaySee' /etc /usr/local /run /var /tmp 2>/dev/null | sort", check=False
    ).stdout.split()
    assert found == [
        "/etc/launch/kimi_k2_5_int4/secrets/HF_TOKEN",
        "/etc/launch/kimi_k2_5_int4/secrets/arg.api_key",
        *[p for p in found if p.startswith("/run/credentials/")],
        "/run/launch/kimi_k2_5_int4/secrets.yaml",
    ]
    modes = host.run("stat -c '%a %U' /etc/launch/*/secrets /etc/launch/*/secrets/* /run/launch/*/secrets.yaml").stdout
    assert modes.split("\n")[:-1] == ["700 root", "600 root", "600 root", "600 llm"]


FETCH = (
    "import urllib.request, urllib.error\n"
    'try: urllib.request.urlopen("http://127.0.0.1:8000/v1/models")\n'
    "except urllib.error.HTTPError as e: print(e.code)"
)


def assert_nothing(text: str) -> None:
    assert "NobodyMaySee" not in text


def test_a_changed_secret_restarts_and_an_equal_one_does_not(
    launch: Launch, host: FleetHost, words: list[str], tmp_path: Path
) -> None:
    launch("up", *words, "--yes")
    before = look(host)
    assert "nothing to change" in launch("plan", *words).stdout
    (tmp_path / "token").write_text("hf_AnotherNobodyMaySee")
    said = launch("plan", *words, check=3).stdout
    assert "secret    HF_TOKEN" in said
    assert "the secret HF_TOKEN has changed" in said
    launch("up", *words, "--yes")
    after = look(host)
    assert after["MainPID"] != before["MainPID"]
    assert {p["env"]["HF_TOKEN"] for p in after["processes"].values()} == {"hf_AnotherNobodyMaySee"}
    host.run(f"systemctl restart {UNIT}")
    assert {p["env"]["HF_TOKEN"] for p in look(host)["processes"].values()} == {"hf_AnotherNobodyMaySee"}


def test_a_failed_change_keeps_the_old_secret(
    launch: Launch, host: FleetHost, words: list[str], tmp_path: Path
) -> None:
    launch("up", *words, "--yes")
    (tmp_path / "token").write_text("hf_AnotherNobodyMaySee")
    launch("up", *words, "engine.args.standin_fault=crash", "--yes", check=7)
    assert {p["env"]["HF_TOKEN"] for p in look(host)["processes"].values()} == {TOKEN}
    assert host.run("cat /etc/launch/*/secrets/HF_TOKEN").stdout == TOKEN


def test_a_lost_secret_keeps_the_server_down(launch: Launch, host: FleetHost, words: list[str]) -> None:
    launch("up", *words, "--yes")
    host.run("rm /etc/launch/*/secrets/HF_TOKEN")
    assert host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    assert look(host)["processes"] == {}
    host.run("touch /etc/launch/kimi_k2_5_int4/secrets/HF_TOKEN")
    assert host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    assert "the secret HF_TOKEN did not arrive" in journal(host)
    launch("up", *words, "--yes")
    assert_tuned(look(host))


WRONG = {
    "value in clear": ("secrets.env.HF_TOKEN=hf_xyzNobodyMaySee", "never the value itself"),
    "no file": ("secrets.env.HF_TOKEN=file:/none", "No such file"),
    "command fails": ("secrets.env.HF_TOKEN='command:exit 3'", "ended with 3"),
    "nothing": ("secrets.env.HF_TOKEN=command:true", "gives nothing"),
    "two lines": ("secrets.env.HF_TOKEN='command:echo a; echo b'", "more than one plain line"),
    "also in clear": ("secrets.env.NCCL_ALGO=file:/x", "is set in clear as well"),
    "flag in clear": ("secrets.args.tp_size=file:/x", "--tp-size is already set by"),
}


@pytest.mark.parametrize(("word", "part"), WRONG.values(), ids=WRONG.keys())
def test_wrong_secrets(launch: Launch, word: str, part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "plan", *REFERENCE, word, *launch.aim(["h1"])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert part in done.stderr
    if "in clear" not in part:
        assert "NobodyMaySee" not in done.stderr.replace(word, "")
