"""Host keys on record."""

from __future__ import annotations

import base64
import hmac
import subprocess
from typing import TYPE_CHECKING

import pytest

from launcher.host import ssh_known
from launcher.host.ssh_route import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

OWN, OTHER = b"\0\0\0\x0bssh-ed25519own", b"\0\0\0\x0bssh-ed25519other"


def line(names: str, blob: bytes = OWN) -> str:
    return f"{names} ssh-ed25519 {base64.b64encode(blob).decode()} a comment\n"


def at(host: str, port: int = 22, alias: str = "") -> Endpoint:
    return Endpoint(name=host, hostname=host, user="u", port=port, host_key_alias=alias)


def judge(text: str, endpoint: Endpoint) -> str:
    return ssh_known.select(ssh_known.read(text, "known"), ssh_known.names(endpoint)).judge(OWN)


@pytest.mark.parametrize(
    ("text", "endpoint", "judged"),
    [
        ("", at("h"), "unknown"),
        (line("h"), at("h"), "known"),
        (line("H"), at("h"), "known"),
        (line("h"), at("H"), "known"),
        (line("g,h"), at("h"), "known"),
        (line("hh"), at("h"), "unknown"),
        (line("h", OTHER), at("h"), "changed"),
        (line("h", OTHER) + line("h"), at("h"), "known"),
        (line("*.example.com"), at("a.example.com"), "known"),
        (line("h?"), at("h1"), "known"),
        (line("*.example.com,!b.example.com"), at("b.example.com"), "unknown"),
        (line("a.example.com"), at("axexample.com"), "unknown"),
        (line("[h]:2222"), at("h", 2222), "known"),
        (line("[h]:2222"), at("h"), "unknown"),
        (line("h"), at("h", 2222), "known"),
        (line("h", OTHER), at("h", 2222), "unknown"),
        (line("[h]:2222", OTHER) + line("h"), at("h", 2222), "known"),
        (line("[h]:2222", OTHER), at("h", 2222), "changed"),
        (line("alias"), at("h", 2222, "Alias"), "known"),
        (line("h"), at("h", 22, "alias"), "unknown"),
        (line("fe80::1%eth0"), at("fe80::1%eth0"), "known"),
        (line("[fd00::1]:2222"), at("fd00::1", 2222), "known"),
        (line("h") + line("@revoked *"), at("h"), "revoked"),
        (line("@revoked h") + line("h"), at("h"), "revoked"),
        (line("@revoked g") + line("h"), at("h"), "known"),
        (line("@revoked h", OTHER) + line("h"), at("h"), "known"),
        (line("@cert-authority *"), at("h"), "certificate only"),
        (line("@cert-authority *") + line("h"), at("h"), "known"),
        (line("@cert-authority *") + line("h", OTHER), at("h"), "changed"),
        (line("@future h"), at("h"), "unknown"),
        ("# " + line("h"), at("h"), "unknown"),
        ("h ssh-ed25519 not-base64!\nh\n\nh 1024 35 1234\n" + line("h"), at("h"), "known"),
    ],
)
def test_a_key_is_judged(text: str, endpoint: Endpoint, judged: str) -> None:
    assert judge(text, endpoint) == judged


@pytest.mark.parametrize(("name", "endpoint"), [("h", at("h")), ("[h]:2222", at("h", 2222))])
def test_hashed_names(name: str, endpoint: Endpoint, tmp_path: Path) -> None:
    salt = base64.b64encode(b"x" * 20).decode()
    digest = hmac.new(b"x" * 20, name.encode(), "sha1").digest()
    hashed = f"|1|{salt}|{base64.b64encode(digest).decode()}"
    assert judge(line(hashed), endpoint) == "known"
    assert judge(line(hashed), at("other")) == "unknown"
    assert judge(line("|1|broken"), endpoint) == "unknown"


def test_files_are_read_one_after_the_other_and_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("# a comment\n" + line("h"))
    files = (str(tmp_path / "one"), str(tmp_path / "two"))
    record = ssh_known.record(Endpoint(name="h", hostname="h", user="u", known_hosts=files))
    assert [entry.where for entry in record.keys] == [f"{tmp_path}/two:2"]
    assert record.kinds == {"ssh-ed25519"}


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    blob = base64.b64decode((tmp_path / "k.pub").read_text().split()[1])
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(tmp_path / "k")], check=True, capture_output=True, text=True)
    assert ssh_known.fingerprint(blob) in shown.stdout
