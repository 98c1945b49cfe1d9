"""Hosts reached as people reach them, against OpenSSH's real server and sudo."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import ConfigError, HostError, HostKeyError, UnreachableError
from launcher.host import ssh_sudo
from launcher.host.ssh import SshTransport
from launcher.host.ssh_sudo import SudoPassword
from launcher.schema import Target
from tests.system.tool import REFERENCE, Launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import Fleet, FleetHost

pytestmark = pytest.mark.fleet

#: In place of the agent, so that these tests are about the way alone.
PROGRAM = """
import json, os, socket
came = os.environ.get("SSH_CONNECTION", "").split()
print(json.dumps({"result": {"uid": os.getuid(), "host": socket.gethostname(), "from": came[:1]}}))
"""
PASSWORD = "påss wörd $(id) \\ '\""


@dataclass(frozen=True)
class Reach:
    """Reaches a host with an SSH configuration of its own."""

    folder: Path
    fleet: Fleet

    def __call__(self, host: str, config: str, **target: Any) -> dict[str, Any]:
        path = self.folder / "config"
        path.write_text(config)
        options: dict[str, Any] = {"connect_timeout": 5, "ssh_config": str(path)} | target
        return SshTransport(host, Target(kind="ssh", **options)).call({}, print)

    @property
    def keys(self) -> str:
        """The lines of a configuration that hold for every host of the fleet."""
        return (
            f"IdentityFile {self.fleet.identity}\nUserKnownHostsFile {self.fleet.known_hosts}\n"
            "GlobalKnownHostsFile /dev/null\nIdentityAgent none\nIdentitiesOnly yes\n"
        )

    def hosts(self, **names: int) -> str:
        """Return a configuration with aliases for hosts of the fleet."""
        entries = (f"Host {name}\nHostName {self.fleet.hosts[i - 1].address}\nUser root\n" for name, i in names.items())
        return "".join(entries) + f"Host *\n{self.keys}"


@pytest.fixture
def reach(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reach:
    monkeypatch.setattr("launcher.host.transport.payload", lambda _request: PROGRAM)
    return Reach(tmp_path, fleet)


def key_of(fleet: Fleet, name: str) -> str:
    """Return type and key of a host."""
    lines = (line.split(maxsplit=1) for line in fleet.known_hosts.read_text().splitlines())
    return next(key for names, key in lines if names.split(",")[0] == name)


def accepted(host: FleetHost) -> int:
    """Return how many logins the host's sshd has let in."""
    return int(host.run("journalctl --sync; journalctl -u ssh -o cat | grep -c Accepted").stdout)


def new_key(path: Path, *, passphrase: str = "", kind: str = "ed25519") -> Path:
    words = [
        "ssh-keygen",
        "-q",
        "-t",
        kind,
        *(["-b", "2048"] if kind == "rsa" else []),
        "-N",
        passphrase,
        "-f",
        str(path),
    ]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


# Ways


def test_through_one_hop_with_alias_include_and_match(reach: Reach) -> None:
    one, two, _ = reach.fleet.hosts
    included = reach.folder / "included"
    included.write_text(f"Host hop\nHostName {one.address}\nUser ops\n")
    config = (
        f"Include {included}\nHost far\nHostName {two.address}\nProxyJump hop\n"
        f'Match originalhost far exec "test %n = far"\nUser root\nHost *\n{reach.keys}'
    )
    assert reach("far", config) == {"uid": 0, "host": "h2", "from": [one.address]}


def test_through_a_chain_of_hops(reach: Reach) -> None:
    three = reach.fleet.hosts[2]
    config = "Host b\nProxyJump a\nHost c\nProxyJump b\n" + reach.hosts(a=1, b=3, c=2)
    assert reach("c", config) == {"uid": 0, "host": "h2", "from": [three.address]}
    listed = "Host c\nProxyJump root@a:22,b\n" + reach.hosts(a=1, b=3, c=2)
    assert reach("c", listed)["from"] == [three.address]


def test_by_a_proxy_command_which_may_fail(reach: Reach) -> None:
    one = reach.fleet.hosts[0]
    through = f"ssh -F {reach.fleet.ssh_config} h1 -W %h:%p"
    found = reach("far", f"Host far\nProxyCommand {through}\n" + reach.hosts(far=2))
    assert found == {"uid": 0, "host": "h2", "from": [one.address]}
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match=r"ProxyCommand said: no way to 10\..*:22"):
        reach("far", "Host far\nProxyCommand echo no way to %h:%p >&2\n" + reach.hosts(far=2))
    assert time.monotonic() - begun < 4


def test_the_jump_host_that_cannot_go_on_is_named(reach: Reach) -> None:
    config = "Host dead\nHostName 127.0.0.1\nPort 9\nProxyJump hop\n" + reach.hosts(hop=1)
    with pytest.raises(UnreachableError, match=r"^dead: no way from the hop before to 127.0.0.1 port 9"):
        reach("dead", config)
    with pytest.raises(UnreachableError, match=r"^far: jump host gone: the name gone.invalid is unknown"):
        reach("far", "Host gone\nHostName gone.invalid\nHost far\nProxyJump gone\n" + reach.hosts(far=2))


def test_without_an_ssh_client(reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, _ = reach.fleet.hosts
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    config = "Host far\nProxyJump hop\n" + reach.hosts(hop=1, far=2)
    assert reach("far", config) == {"uid": 0, "host": "h2", "from": [one.address]}
    (reach.folder / "more").write_text(f"Host other\nHostName {two.address}\n")
    with pytest.raises(ConfigError, match=r"config:1: `Include .*` needs the OpenSSH client"):
        reach("far", f"Include {reach.folder}/more\n" + config)


def test_ipv6(reach: Reach) -> None:
    one = reach.fleet.hosts[0]
    assert one.cable
    link, inner = one.cable.bridge, ("ip", "-netns", one.cable.namespace)
    subprocess.run(["ip", "-6", "address", "add", "fd00:213::1/64", "dev", link, "nodad"], check=True)
    subprocess.run([*inner, "-6", "address", "add", "fd00:213::2/64", "dev", "host0", "nodad"], check=True)
    try:
        local = subprocess.run(
            [*inner, "-6", "-o", "address", "show", "dev", "host0", "scope", "link"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()[3]
        scoped = f"{local.partition('/')[0]}%{link}"
        known = reach.folder / "known"
        known.write_text(f"fd00:213::2,{scoped},[fd00:213::2]:2222 {key_of(reach.fleet, 'h1')}\n")
        config = f"Host *\n{reach.keys}"
        for written in ("fd00:213::2", "root@[fd00:213::2]:22", "ops@fd00:213::2", f"[{scoped}]", f"ops@{scoped}"):
            assert reach(written, config, known_hosts=str(known))["host"] == "h1"
    finally:
        subprocess.run(["ip", "-6", "address", "del", "fd00:213::1/64", "dev", link], check=True)
        subprocess.run([*inner, "-6", "address", "del", "fd00:213::2/64", "dev", "host0"], check=True)


# Host keys


def test_hashed_names_in_a_file_of_ones_own(reach: Reach) -> None:
    known = reach.folder / "known hosts"
    known.write_text(f"{reach.fleet.hosts[0].address} {key_of(reach.fleet, 'h1')}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "|1|" in known.read_text()
    config = f'Host a\nUserKnownHostsFile "{known}"\n' + reach.hosts(a=1)
    assert reach("a", config)["host"] == "h1"


@pytest.mark.parametrize(("strict", "hop"), [("no", True), ("accept-new", False)])
def test_only_a_key_on_record_is_accepted(reach: Reach, strict: str, hop: bool) -> None:
    fleet = reach.fleet
    before = accepted(fleet.hosts[0])
    known = reach.folder / "known"
    config = (
        f"StrictHostKeyChecking {strict}\nHost a\nUserKnownHostsFile {known}\nHost far\nProxyJump a\n"
        + reach.hosts(a=1, far=2)
    )
    address, own, other = fleet.hosts[0].address, key_of(fleet, "h1"), key_of(fleet, "h2")
    whose = "the jump host a's" if hop else "its"
    for line, said in {
        f"{address} {other}": "host key has CHANGED",
        f"elsewhere {own}": r"host key is unknown \(ssh-ed25519 SHA256:",
        f"{address} {own}\n@revoked * {own}": "host key is REVOKED",
        f"@cert-authority * {own}": "host key is only vouched for by @cert-authority",
    }.items():
        known.write_text(line + "\n")
        text = known.read_text()
        with pytest.raises(HostKeyError, match=f"{whose} {said}") as caught:
            reach("far" if hop else "a", config)
        assert caught.value.exit_code == 5
        assert known.read_text() == text
    assert accepted(fleet.hosts[0]) == before + 1  # the call that counted before


def test_a_host_without_the_type_of_key_on_record(reach: Reach) -> None:
    kind, key, _ = new_key(reach.folder / "other", kind="ecdsa").with_suffix(".pub").read_text().split()
    (reach.folder / "known").write_text(f"{reach.fleet.hosts[0].address} {kind} {key}\n")
    config = f"Host a\nUserKnownHostsFile {reach.folder}/known\n" + reach.hosts(a=1)
    with pytest.raises(HostKeyError, match="has CHANGED: it has none of the type on record"):
        reach("a", config)


def test_the_command_ends_with_5(reach: Reach, launch: Launch) -> None:
    one = reach.fleet.hosts[0]
    (reach.folder / "known").write_text(f"{one.address} {key_of(reach.fleet, 'h2')}\n")
    config = reach.folder / "config"
    config.write_text(
        f"Host a\nUserKnownHostsFile {reach.folder}/known\nHost far\nProxyJump a\n" + reach.hosts(a=1, far=2)
    )
    words = [word for word in launch.aim(("far",)) if not word.startswith("target.ssh_config=")]
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "plan", *REFERENCE, *words, f"target.ssh_config={config}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "the jump host a's host key has CHANGED" in done.stdout


# Logins


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        while not path.exists():
            time.sleep(0.01)
        yield path
        process.terminate()


def add(agent: Path, *words: str | Path) -> None:
    subprocess.run(
        ["ssh-add", "-q", *map(str, words)], env=os.environ | {"SSH_AUTH_SOCK": str(agent)}, check=True, timeout=10
    )


def test_a_key_in_an_agent(reach: Reach, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(6):  # more than the server lets try, so the order matters
        add(agent, new_key(reach.folder / f"other{index}"))
    add(agent, reach.fleet.identity)
    public = reach.folder / "mine.pub"
    shutil.copy(reach.fleet.identity.with_name("identity.pub"), public)
    one = reach.fleet.hosts[0]
    base = f"HostName {one.address}\nUser root\nUserKnownHostsFile {reach.fleet.known_hosts}\n"
    for lines in (
        f"IdentityAgent {agent}\nIdentityFile {public}\nIdentitiesOnly yes\n",
        f"IdentityAgent {agent}\nIdentityFile {public.with_suffix('')}\n",
    ):
        assert reach("a", f"Host a\n{base}{lines}")["host"] == "h1"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    assert reach("a", f"Host a\n{base}IdentityFile {public}\n")["host"] == "h1"
    with pytest.raises(UnreachableError, match=r"hung up after 6 keys: say which one, with target.identity_file"):
        reach("a", f"Host a\n{base}IdentityFile none\n")
    assert reach("a", f"Host a\n{base}IdentityFile none\n", identity_file=str(reach.fleet.identity))["host"] == "h1"


def test_a_user_certificate(reach: Reach, agent: Path) -> None:
    one = reach.fleet.hosts[0]
    authority = new_key(reach.folder / "authority")
    (one.root / "etc/ssh/user_ca.pub").write_text(authority.with_suffix(".pub").read_text())
    extra = one.root / "etc/ssh/sshd_config.d/ca.conf"
    extra.write_text("TrustedUserCAKeys /etc/ssh/user_ca.pub\n")
    one.run("systemctl reload ssh")
    base = f"Host a\nHostName {one.address}\nUser root\nUserKnownHostsFile {reach.fleet.known_hosts}\n"
    none = "IdentityAgent none\nIdentitiesOnly yes\n"
    try:
        for kind in ("ed25519", "rsa"):
            mine = new_key(reach.folder / kind, kind=kind)
            with pytest.raises(UnreachableError, match=r"login as root refused .none of 1 keys is accepted"):
                reach("a", f"{base}{none}IdentityFile {mine}\n")
            sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "root", f"{mine}.pub"]
            subprocess.run(sign, check=True, capture_output=True)
            assert reach("a", f"{base}{none}IdentityFile {mine}\n")["host"] == "h1"
            add(agent, mine)  # takes the certificate along
            elsewhere = Path(f"{mine}-cert.pub").rename(reach.folder / f"{kind}-elsewhere")
            assert reach("a", f"{base}{none}IdentityFile {mine}\nCertificateFile {elsewhere}\n")["host"] == "h1"
            hidden = mine.rename(reach.folder / f"{kind}-hidden")
            held = f"IdentityAgent {agent}\nIdentitiesOnly yes\nIdentityFile {mine}.pub\n"
            assert reach("a", base + held)["host"] == "h1"
            assert reach("a", f"{base}{held}CertificateFile {elsewhere}\n")["host"] == "h1"
            assert hidden.exists()
            add(agent, "-D")
    finally:
        extra.unlink()
        one.run("systemctl reload ssh")


def test_what_stands_in_the_way_of_a_login_is_named(reach: Reach) -> None:
    one = reach.fleet.hosts[0]
    base = f"Host a\nHostName {one.address}\nUser root\nUserKnownHostsFile {reach.fleet.known_hosts}\n"
    locked = new_key(reach.folder / "locked", passphrase="secret")
    for lines, said in {
        f"IdentityAgent none\nIdentityFile {locked}\n": f"there is no key to try; {locked} has a passphrase: ssh-add",
        f"IdentityAgent {locked}\nIdentityFile none\n": f"there is no key to try; no agent answers at {locked}",
        "IdentityAgent none\nIdentityFile none\nPKCS11Provider /x.so\n": "PKCS11Provider: .*: ssh-add -s /x.so",
        f"IdentityAgent none\nIdentityFile {locked}.pub\n": "is only the public half, and no agent has the other",
    }.items():
        with pytest.raises(UnreachableError, match=f"login as root refused .*{said}"):
            reach("a", base + lines)
    with pytest.raises(ConfigError, match="a: PubkeyAuthentication no is not supported: "):
        reach("a", f"{base}PubkeyAuthentication no\n")


def test_a_host_without_python_there(reach: Reach) -> None:
    for user in ("root", "ops"):
        with pytest.raises(HostError, match=r"no Python at /usr/bin/python9: set target.python=.*; it has /usr/bin/py"):
            reach(f"{user}@a", reach.hosts(a=1), python="/usr/bin/python9")


# Sudo


@pytest.fixture(scope="module")
def with_pat(fleet: Fleet) -> Iterator[FleetHost]:
    """A host with a user `pat`, who has to give a password to sudo, each time."""
    one = fleet.hosts[0]
    (one.root / "root/passwords").write_text(f"pat:{PASSWORD}\n")
    one.run(
        "useradd --create-home --shell /bin/bash pat; install -d -o pat -g pat -m 700 ~pat/.ssh;"
        " install -o pat -g pat -m 600 ~/.ssh/authorized_keys ~pat/.ssh/authorized_keys;"
        " chpasswd < /root/passwords; rm /root/passwords; echo 'pat ALL=(ALL) ALL' > /etc/sudoers.d/pat"
    )
    yield one
    one.run("pkill -KILL -u pat; userdel --remove pat; rm -rf /etc/sudoers.d/pat /var/lib/sudo/lectured/*", check=False)


@pytest.fixture
def guarded(with_pat: FleetHost, monkeypatch: pytest.MonkeyPatch) -> FleetHost:
    monkeypatch.setattr(SudoPassword, "_typed", "")
    return with_pat


def password_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "password"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_password_for_sudo_from_a_file(reach: Reach, guarded: FleetHost, launch: Launch) -> None:
    config = reach.hosts(a=1)
    file = password_file(reach.folder, PASSWORD + "\n")
    assert reach("pat@a", config, sudo_password_file=file)["uid"] == 0
    # Where sudo asks for nothing, nothing is given, and the program is not mistaken for it.
    for user in ("root", "ops"):
        assert reach(f"{user}@a", config, sudo_password_file=file)["uid"] == 0
    with pytest.raises(HostError, match=r"target\.sudo_password_file=FILE"):
        reach("pat@a", config)
    with pytest.raises(ConfigError, match=r"others may read it \(mode 0640\): chmod 600"):
        reach("pat@a", config, sudo_password_file=password_file(reach.folder, PASSWORD, 0o640))
    log = guarded.run("journalctl --sync; journalctl -o cat _COMM=sudo").stdout
    assert "COMMAND=" in log
    assert PASSWORD not in log


def test_a_wrong_password_counts_once(reach: Reach, guarded: FleetHost) -> None:
    file = password_file(reach.folder, "wrong\n")
    with pytest.raises(HostError, match="sudo refuses the password; it was given once"):
        reach("pat@a", reach.hosts(a=1), sudo_password_file=file)
    deadline = time.monotonic() + 10
    while "incorrect password attempt" not in (log := guarded.run("journalctl --sync; journalctl -o cat").stdout):
        assert time.monotonic() < deadline, log
        time.sleep(0.2)
    assert "1 incorrect password attempt" in log


def test_a_user_who_may_not(reach: Reach, guarded: FleetHost) -> None:
    file = password_file(reach.folder, PASSWORD)
    guarded.run("echo 'pat ALL=(ALL) /bin/true' > /etc/sudoers.d/pat")
    try:
        with pytest.raises(HostError, match="sudo does not allow this user to run /usr/bin/python3 as root"):
            reach("pat@a", reach.hosts(a=1), sudo_password_file=file)
    finally:
        guarded.run("echo 'pat ALL=(ALL) ALL' > /etc/sudoers.d/pat")


def test_a_password_is_asked_for_once(reach: Reach, guarded: FleetHost, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(SudoPassword, "can_ask", lambda _self: True)

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return PASSWORD

    monkeypatch.setattr(ssh_sudo, "ask", ask)
    threads = [threading.Thread(target=reach, args=("pat@a", reach.hosts(a=1))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reach("pat@a", reach.hosts(a=1))["uid"] == 0
    assert asked == ["password for sudo on pat@a (also for the other hosts of this run): "]


def test_a_password_is_typed_at_the_terminal(launch: Launch, guarded: FleetHost) -> None:
    words = ["plan", *REFERENCE, *launch.aim(("h1",)), "target.user=pat"]
    terminal, inner = pty.openpty()
    command = ["setsid", "--ctty", sys.executable, "-m", "launcher", *words]
    process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    seen = b""
    try:
        while data := _read(terminal):
            seen += data
            if seen.endswith(b"hosts of this run): "):
                os.write(terminal, PASSWORD.encode() + b"\n")
    finally:
        os.close(terminal)
        code = process.wait()
    text = seen.decode()
    assert code == 3, text
    assert PASSWORD not in text
    assert text.count("password for sudo on h1") == 1


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so when the other side has gone
        return b""


def test_groups_of_an_inventory_lead_to_hosts_by_address(launch: Launch, host: FleetHost, tmp_path: Path) -> None:
    """An inventory gives the way, known hosts and keys come from the SSH configuration."""
    config = tmp_path / "config"
    config.write_text(
        f"Host *\nIdentityFile {launch.fleet.identity}\n"
        f"UserKnownHostsFile {launch.fleet.known_hosts}\nIdentityAgent none\n"
    )
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        f"[gpu]\nfirst ansible_host={host.address} ansible_user=root\n"
        "second ansible_host=192.0.2.1\n[all:vars]\nrack=a\n"
    )
    words = [word for word in launch.aim(("h1",)) if not word.startswith(("target.ssh_config=", "target.hosts="))]
    words += [f"target.ssh_config={config}", f"target.inventory={inventory}", "target.hosts=[gpu]"]
    tries = {"first": 3, "!second,rack=a": 3, "tpu*": 2}
    for limit, code in tries.items():
        done = subprocess.run(
            [sys.executable, "-m", "launcher", "plan", *REFERENCE, *words, "--limit", limit],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "second" not in done.stdout
        assert ("first\n" in done.stdout) is (code == 3)
