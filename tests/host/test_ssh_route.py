"""Where a host's name leads, told from configuration alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import ConfigError
from launcher.host import ssh_config, ssh_names, ssh_refused
from launcher.host.ssh_names import Name
from launcher.host.ssh_route import Endpoint, endpoint, route
from launcher.schema import Target

if TYPE_CHECKING:
    from pathlib import Path

SAID = """\
user ops
hostname gpu1.example.com
port 2222
identitiesonly yes
identityfile ~/.ssh/%r-%h-%n
identityfile /keys/a%%b
certificatefile none
userknownhostsfile /one /two
globalknownhostsfile none
connecttimeout 7
proxycommand nc -X 5 %h %p '%%'
hostkeyalias gpu
pubkeyauthentication true
localforward 8080 [localhost]:80
"""
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client here")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpu1", Name("gpu1")),
        ("ops@gpu1", Name("gpu1", "ops")),
        ("gpu1:2222", Name("gpu1", "", 2222)),
        ("me@corp@gpu1:22", Name("gpu1", "me@corp", 22)),
        ("fd00::1", Name("fd00::1")),
        ("::1", Name("::1")),
        ("[fd00::1]:22", Name("fd00::1", "", 22)),
        ("ops@[fe80::1%eth0]", Name("fe80::1%eth0", "ops")),
        ("ssh://ops@[fe80::1%eth0]:2222", Name("fe80::1%eth0", "ops", 2222)),
    ],
)
def test_a_host_as_people_write_it(written: str, meant: Name) -> None:
    assert ssh_names.parse(written) == meant


WRONG = r""" @gpu1|ops@|-oProxyCommand=x|a b|gpu1:|gpu1:0|gpu1:65536|gpu1:2²|[::1]x|a;b|$(id)|-x@gpu1|a`b@gpu1|gpu1:ssh
|a\@b|[::1|x -y@gpu1|[]|a[b]|"""


@pytest.mark.parametrize("written", WRONG.split("|"))
def test_no_host(written: str) -> None:
    with pytest.raises(ConfigError, match=r"target\.hosts: "):
        ssh_names.parse(written)


def test_what_ssh_says_is_read_and_its_tokens_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    found = endpoint(Name("g"), ssh_config.parse(SAID), Target())
    ssh = ssh_config.home() / ".ssh"
    assert found == Endpoint(
        name="g",
        hostname="gpu1.example.com",
        user="ops",
        port=2222,
        host_key_alias="gpu",
        known_hosts=("/one", "/two"),
        identity_files=(f"{ssh}/ops-gpu1.example.com-g", "/keys/a%b"),
        identities_only=True,
        agent="/agent",
        proxy_command="nc -X 5 gpu1.example.com 2222 '%'",
        timeout=7,
        by_hand="ssh g",
    )


@pytest.mark.parametrize(
    ("line", "agent"),
    [("none", ""), ("SSH_AUTH_SOCK", "/env"), ("$OTHER", "/other"), ("/run/%u/${OTHER}", "/run/me//other")],
)
def test_the_agent(line: str, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/env")
    monkeypatch.setenv("OTHER", "/other")
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    options = ssh_config.parse(SAID + f"identityagent {line}\n")
    assert endpoint(Name("g"), options, Target()).agent == agent


def test_target_goes_before_the_configuration_and_not_to_jump_hosts(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "known").touch()
    target = Target(identity_file=f"{tmp_path}/key", known_hosts=f"{tmp_path}/known", connect_timeout=3)
    options = ssh_config.parse(SAID)
    own, jump = (endpoint(Name("g"), options, target, is_jump=is_jump) for is_jump in (False, True))
    assert own.identity_files[0] == f"{tmp_path}/key"
    assert own.known_hosts == (f"{tmp_path}/known",)
    assert jump.identity_files == own.identity_files[1:]
    assert jump.known_hosts == (f"{tmp_path}/known", "/one", "/two")
    assert own.timeout == jump.timeout == 3


@pytest.mark.parametrize("key", ["identity_file", "known_hosts", "ssh_config"])
def test_a_file_that_is_not_there(key: str) -> None:
    target: dict[str, Any] = {key: "/nowhere"}
    with pytest.raises(ConfigError, match=rf"target\.{key}=/nowhere: there is no such file"):
        route("h", Target(**target))


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("revokedhostkeys /etc/krl", "RevokedHostKeys"),
        ("revokedhostkeys none", ""),
        ("pubkeyauthentication no", "PubkeyAuthentication no"),
        ("pubkeyauthentication host-bound", ""),
        ("proxyusefdpass yes", "ProxyUseFdpass yes"),
        ("proxyusefdpass no", ""),
        ("stricthostkeychecking no", ""),
        ("controlmaster auto", ""),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(line: str, refused: str) -> None:
    found = ssh_refused.refusals(ssh_config.parse(line))
    assert [text.partition(" is not supported: ")[0] for text in found] == ([refused] if refused else [])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("pkcs11provider /x.so", "PKCS11Provider: put the card's keys into an agent: ssh-add -s /x.so"),
        ("gssapiauthentication yes", "GSSAPIAuthentication: "),
        ("gssapiauthentication no", ""),
        ("hostbasedauthentication yes", "HostbasedAuthentication: "),
        ("knownhostscommand /bin/x", "KnownHostsCommand: "),
        ("pkcs11provider none", ""),
    ],
)
def test_what_is_not_used_is_told(line: str, told: str) -> None:
    found = ssh_refused.unusable(ssh_config.parse(line))
    assert found[0].startswith(told) if told else found == [], found


def written(folder: Path, text: str) -> Target:
    (folder / "config").write_text(text)
    return Target(ssh_config=str(folder / "config"))


@pytest.fixture(params=[True, False], ids=["ssh", "no ssh"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Once with OpenSSH's reader and once with paramiko's."""
    if request.param and shutil.which("ssh") is None:
        pytest.skip("no OpenSSH client here")
    if not request.param:
        monkeypatch.setattr(shutil, "which", lambda _name: None)
    return bool(request.param)


def test_hops(reader: bool, tmp_path: Path) -> None:
    target = written(
        tmp_path,
        "Host far\nHostName far.example\nProxyJump one:2200,me@two\nUser root\n"
        "Host one\nHostName 10.0.0.1\nUser ops\nProxyJump zero\n"
        "Host two\nHostName 10.0.0.2\nProxyJump one\nPort 77\n"
        "Host direct\nProxyCommand nc %h %p\n",
    )
    hops = [(hop.hostname, hop.user, hop.port) for hop in route("far", target)]
    assert [hops[0][0], *hops[1:]] == [
        "zero",
        ("10.0.0.1", "ops", 2200),
        ("10.0.0.2", "me", 77),
        ("far.example", "root", 22),
    ]
    assert [hop.proxy_command for hop in route("x@direct:5", target)] == ["nc direct 5"]
    assert route("x@direct:5", target)[0].user == "x"


def test_a_jump_host_that_jumps_through_itself(reader: bool, tmp_path: Path) -> None:
    target = written(tmp_path, "Host a\nProxyJump b\nHost b\nProxyJump a\n")
    with pytest.raises(ConfigError, match="its ProxyJump never ends: a -> b -> a; give one of them `ProxyJump none`"):
        route("a", target)


@needs_ssh
def test_what_only_ssh_can_read(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host far\nHostName far.example\n")
    target = written(
        tmp_path,
        f'Include {tmp_path}/more\nMatch originalhost far exec "true"\nPort 7\n'
        "Match final host far.example\nUser fin\n",
    )
    (hop,) = route("far", target)
    assert (hop.hostname, hop.port, hop.user) == ("far.example", 7, "fin")


@needs_ssh
def test_a_broken_configuration_is_told_in_the_words_of_ssh(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"h: OpenSSH refuses its configuration: .*line 1: Bad configuration option"):
        route("h", written(tmp_path, "Nonsense yes\n"))


def test_include_without_ssh_is_refused_only_where_it_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert route("h", written(tmp_path, f"Include {tmp_path}/none/*.conf\n"))[0].hostname == "h"
    (tmp_path / "more").touch()
    with pytest.raises(ConfigError, match=r"config:2: `include = .*more` needs the OpenSSH client on this machine"):
        route("h", written(tmp_path, f"# Include x\ninclude = {tmp_path}/mor*\n".replace("mor*", "more")))
