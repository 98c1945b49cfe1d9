"""Drift of every kind, on a real host: found in its layer, named, mended where it is ours; the harmless like is not."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent.findings import counts
from launcher.cli import main
from launcher.host import bundle, transport
from tests.fleet import access
from tests.system.drift_kinds import FURNISH, GROUPS, KEEP, KEEP_OTHER, KINDS, KIT, UNFURNISH, Kind
from tests.system.tool import UNIT, WIPE, Launch, assert_tuned, look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.fleet import Fleet, FleetHost

pytestmark = pytest.mark.fleet

#: A stand-in that is ready when the waiter asks for the first time.
QUICK = ("engine.args.standin_load=0.02", "engine.args.standin_warmup=0.01")
FACTS = Path(__file__).resolve().parent.parent / "facts"


@dataclass(frozen=True)
class Site:
    """A host with one deployment, and the words that it was deployed from."""

    host: FleetHost
    launch: Launch
    words: tuple[str, ...]
    channel: Path

    def sh(self, script: str) -> str:
        """Run shell on the host, with the kit, over the one connection; what fails in it is not looked at."""
        done = subprocess.run(
            [*self.ssh(), self.host.name, f"{KIT}\n{script}\ntrue"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    def ssh(self) -> list[str]:
        """Return the command that goes through the one connection, for speed."""
        return [*access.command(self.host.ssh_config, self.host.name)[:-1], "-o", f"ControlPath={self.channel}"]

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Hold the connection."""
        subprocess.run([*self.ssh(), "-fNM", self.host.name], check=True, capture_output=False)
        try:
            yield
        finally:
            subprocess.run([*self.ssh(), "-O", "exit", self.host.name], check=False, capture_output=True)

    def drift(self, *more: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code of ``launch drift`` and what it says of the host."""
        code, out, _ = self.call("drift", *more, "--json")
        (one,) = json.loads(out)["deployments"]
        return code, one["hosts"][0]

    def call(self, verb: str, *more: str) -> tuple[int, str, str]:
        """Return the exit code and what ``launch`` prints; in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([verb, *self.words, *more, *self.launch.aim(["h1"])])
        return code, out.getvalue(), err.getvalue()

    def assert_in_sync(self) -> None:
        """Assert that nothing counts."""
        code, said = self.drift()
        assert (code, said["outcome"], counting(said)) == (0, "in sync", []), told(said)


def counting(said: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings that count."""
    return [found for found in said["check"]["findings"] if counts(found)] if said["check"] else []


def told(said: dict[str, Any]) -> str:
    """Return a host's answer for a failed assertion."""
    findings = said["check"]["findings"] if said["check"] else []
    lines = [f"{f['layer']}/{f['id']} {f['severity']} {f['subject']!r}: {f['text']}" for f in findings]
    return "\n".join([said["outcome"], said["message"], *said["evidence"], *lines])


@pytest.fixture(scope="module")
def site(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A host with GPUs, packages, a library of NCCL, a secret, and a deployment that uses them."""
    token = tmp_path_factory.mktemp("secrets") / "token"
    token.write_text("hf_xyz")
    words = ("+hw=h200x2", "+spec=eagle3_2step", "engine.tensor_parallel=2", "nccl=pcie_ll_ring", *QUICK)
    channel = token.with_name("ssh")
    site = Site(fleet.hosts[0], Launch(fleet), (*words, f"secrets.env.HF_TOKEN=file:{token}"), channel)
    site.host.run(WIPE)
    with site.connected(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "payload", impatient)
        furnish(site)
        yield site
        site.sh(UNFURNISH)
    site.host.run(WIPE)


def impatient(request: Mapping[str, Any]) -> str:
    """Return the agent that looks at suspicious processes again after half a second, not two; for speed."""
    program, line, rest = bundle.payload(request).partition("\nscope = ")
    assert program.count("SETTLE_SECONDS = 2.0") == 2
    return program.replace("SETTLE_SECONDS = 2.0", "SETTLE_SECONDS = 0.5") + line + rest


def furnish(site: Site) -> None:
    """Put hardware and packages there, deploy, and keep what that left."""
    files = {"nvidia-smi": FACTS / "stand_in"} | {p.name: p for p in (FACTS / "recorded/h200x2").iterdir()}
    copies = "".join(
        f"cat > {shlex.quote('/opt/gpu/' + name)} <<'END'\n{path.read_text()}\nEND\n" for name, path in files.items()
    )
    site.sh(f"mkdir -p /opt/gpu\n{copies}\n{FURNISH}")
    site.launch("up", *site.words, "nccl.algo=Tree", "nccl.proto=Simple", "--yes")
    site.sh(KEEP_OTHER)
    site.launch("up", *site.words, "--yes")
    site.sh(KEEP)


def assert_found(said: dict[str, Any], code: int, kinds: Sequence[Kind]) -> None:
    """Assert that each kind is found where it lies, and that nothing else counts."""
    allowed = {f"{kind.found[0]}/{kind.found[1]}" for kind in kinds}.union(*(kind.also for kind in kinds))
    for kind in kinds:
        layer, id_, severity = kind.found
        alike = [f for f in said["check"]["findings"] if (f["layer"], f["id"], f["severity"]) == (layer, id_, severity)]
        alike = [f for f in alike if kind.part in f["subject"]]
        assert alike, f"{kind.name}: not found\n{told(said)}"
        text = "\n".join(str(value) for f in alike for value in f.values())
        assert kind.text in text, text
        assert all(f["text"] and f["cause"] is not None for f in alike)
        if any(counts(f) for f in alike):
            assert all(f["mend"] for f in alike if f["layer"] != "library"), text
    others = {f"{f['layer']}/{f['id']}" for f in counting(said)} - allowed
    assert not others, f"more than expected: {others}\n{told(said)}"
    assert code == max(kind.code for kind in kinds), told(said)


RARELY = pytest.mark.soak
#: Found by the same lines of code as a kind beside them.
LIKE_OTHERS = {
    *("env: named again below", "env: a byte order mark", "env: empty", "env: owner", "env: a link", "env: a folder"),
    *("unit: other order", "unit: missing", "unit: missing, not loaded", "unit: empty", "unit: mode"),
    *("drop-in: own, /usr/local", "drop-in: own, /usr", "drop-in: own, attached", "drop-in: UnsetEnvironment="),
    *("drop-in: User=", "drop-in: ExecStartPost=", "drop-in: set-property --runtime", "namesake: transient"),
    *("namesake: generator.early", "manifest: missing", "manifest: mode", "record: cut off", "agent: missing"),
    *("shared record: missing", "secret: mode", "server: failed", "workers: a setting more"),
    *("a process from elsewhere", "limits: core", "interpreter: missing", "manager: an unknown name of NCCL"),
    *("manager: DefaultEnvironment=, not read", "NCCL: another version", "NCCL: silent about a variable"),
    *("GPU: driver", "GPU: a narrower link", "stray: systemd-run", "another release by hand, not started"),
}
assert {kind.name for kind in KINDS} > LIKE_OTHERS


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=RARELY if k.name in LIKE_OTHERS else ()) for k in KINDS], ids=lambda kind: kind.name
)
def test_each_kind_is_found_and_mended_and_its_harmless_like_is_not(site: Site, kind: Kind) -> None:
    mended = False
    try:
        site.sh(kind.inject)
        code, said = site.drift()
        assert_found(said, code, [kind])
        if kind.fix:
            assert_mended(site, kind, said["check"]["main"])
            mended = True
    finally:
        site.sh(f"{'true' if mended else kind.undo}\n{kind.control}")
    try:
        calm = site.drift()
    finally:
        site.sh(kind.undo_control)
    assert calm[0] == 0, f"after the undo, or by the control:\n{told(calm[1])}"
    assert not counting(calm[1]), told(calm[1])


def assert_mended(site: Site, kind: Kind, main: int) -> None:
    """Assert that ``--fix`` puts it back, and that it restarts the server only where that is needed."""
    code, said = site.drift("--fix", "--yes")
    assert (code, said["outcome"], counting(said)) == (0, "in sync", []), told(said)
    assert said["did"]
    assert (said["check"]["main"] == main) == (kind.fix == "files"), said["did"]
    assert said["check"]["proven"] == said["check"]["processes"] == 4
    if kind.fix == "restart":
        assert_tuned(look(site.host))


def test_afterwards_nothing_is_left(site: Site) -> None:
    site.assert_in_sync()
    assert_tuned(look(site.host))


def named(name: str) -> Kind:
    """Return the kind of that name."""
    return next(kind for kind in KINDS if kind.name == name)


NOT_OURS = (
    *("drop-in: own, /etc", "drop-in: Environment=", "manager: a setting of the catalogue", "/etc/nccl.conf"),
    *("secret: mode", "stray: beside the server", "GPU: a process of somebody's", "interpreter: replaced"),
    *("record: missing", "namesake: a weaker folder", "/etc/ld.so.preload"),
)


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_is_not_ours_is_left_alone_with_the_way_to_mend_it(site: Site, name: str) -> None:
    kind = named(name)
    try:
        site.sh(kind.inject)
        before = site.drift()[1]
        code, said = site.drift("--fix", "--yes")
    finally:
        site.sh(kind.undo)
    assert_found(said, code, [kind])
    assert said["check"]["main"] == before["check"]["main"]
    assert all(f["mend"] for f in counting(said))
    site.assert_in_sync()


def test_without_a_yes_files_are_put_back_and_no_server_is_restarted(site: Site) -> None:
    site.sh(f"{named('workers: a changed value').inject}\nsed -i s/Ring/Tree/ $ENV")
    before = look(site.host)["InvocationID"]
    try:
        code, _, err = site.call("drift", "--fix")
        assert (code, "no server is restarted; confirm with --yes" in err) == (4, True)
        assert look(site.host)["InvocationID"] == before
        assert "ok" in site.sh("cmp $ENV $KEPT$ENV && echo ok")
        assert {f["layer"] for f in counting(site.drift()[1])} == {"processes", "library"}
    finally:
        site.sh("put_back; restart")
    site.assert_in_sync()


def test_no_restart_into_what_the_guard_would_refuse(site: Site) -> None:
    site.sh(f"{named('workers: a setting more').inject}\nsystemctl set-environment NCCL_SHM_DISABLE=1")
    before = look(site.host)["InvocationID"]
    try:
        code, text, _ = site.call("drift", "--fix", "--yes")
        assert (code, "not restarted" in text) == (1, True)
        assert "systemctl unset-environment NCCL_SHM_DISABLE" in text
        after = look(site.host)
        assert (after["InvocationID"], after["ActiveState"]) == (before, "active")
        site.sh("systemctl unset-environment NCCL_SHM_DISABLE")
        assert site.call("drift", "--fix", "--yes")[0] == 0
        assert_tuned(look(site.host))
    finally:
        site.sh("systemctl unset-environment NCCL_SHM_DISABLE; put_back")
    site.assert_in_sync()


def test_a_wish_is_no_drift_and_is_never_put_there_by_a_fix(site: Site) -> None:
    wish = "nccl.buffsize=8388608"
    code, said = site.drift(wish)
    assert (code, said["outcome"], counting(said)) == (3, "pending", [])
    assert "8388608" in json.dumps(said["pending"])
    try:
        site.sh("sed -i s/16777216/4194304/ $ENV")
        code, said = site.drift(wish)
        assert (code, said["outcome"]) == (4, "drift and pending"), told(said)
        code, said = site.drift(wish, "--fix", "--yes")
        assert (code, said["outcome"], counting(said)) == (3, "pending", []), told(said)
        assert "ok" in site.sh("cmp $ENV $KEPT$ENV && cmp $UF $KEPT$UF && echo ok")
    finally:
        site.sh("put_back")
    site.assert_in_sync()


def accepting(until: str) -> list[str]:
    """Return the words that accept the drop-in below and what it changes."""
    entries = {"x": "drop-in", "y": f"loaded-setting {UNIT} LimitCORE", "z": f"loaded-setting {UNIT} LimitCORESoft"}
    words: list[str] = []
    for name, finding in entries.items():
        said = {"finding": finding, "reason": "known", "until": until}
        words += [f"+drift.accept.{name}.{key}='{value}'" for key, value in said.items()]
    return words


def test_what_is_accepted_is_shown_and_does_not_count_until_its_last_day(site: Site) -> None:
    try:
        site.launch("up", *site.words, *accepting("2099-01-01"), "--yes")
        site.sh("dropin $D LimitCORE=1M; reload")
        code, said = site.drift(*accepting("2099-01-01"))
        assert (code, said["outcome"], counting(said)) == (0, "in sync", []), told(said)
        assert {f["id"] for f in said["check"]["findings"] if f["muted"]} >= {"drop-in", "loaded-setting"}
        text = site.launch("drift", *site.words, *accepting("2099-01-01")).stdout
        assert "accepted until 2099-01-01: known" in text
        code, said = site.drift(*accepting("2020-01-01"))
        assert code == 4
        assert {f["id"] for f in counting(said)} == {"drop-in", "loaded-setting"}
        site.launch("up", *site.words, "--yes")
    finally:
        site.sh("rm -rf $D; put_back")
    site.assert_in_sync()


#: Runs the deployed agent's check in one process: times, with a clock that is off; prints what counts.
CHECKS = r"""
import collections, sys, time
times, days = int(sys.argv[1]), int(sys.argv[2])
now, text = time.time, time.strftime
time.time = lambda: now() + 86400 * days
time.strftime = lambda form, *when: text(form, *(when or (time.gmtime(time.time()),)))
space = {"__name__": "agent"}
exec(compile(open("/usr/local/lib/launch/agent.py").read(), "agent", "exec"), space)
space["load"]()
from launch_agent.check import check
from launch_agent.findings import counts
found, longest, begin = collections.Counter(), 0.0, now()
for _ in range(times):
    one = now()
    found.update(f["layer"] + "/" + f["id"] for f in check("kimi_k2_5_int4")["findings"] if counts(f))
    longest = max(longest, now() - one)
words = "%d checks, %d findings %s; %.1f s, longest %.2f s"
print(words % (times, sum(found.values()), dict(found), now() - begin, longest))
"""


def checks(site: Site, times: int, days: int = 0, timeout: float = 60) -> str:
    """Run the host's own check and return its account."""
    site.sh(f"cat > /var/tmp/checks.py <<'END'\n{CHECKS}\nEND")
    try:
        return site.host.run(f"python3 /var/tmp/checks.py {times} {days}", timeout=timeout).stdout
    finally:
        site.sh("rm /var/tmp/checks.py")


@pytest.mark.parametrize("days", [400, -400])
def test_another_clock_of_the_check_is_no_drift(site: Site, days: int) -> None:
    """As under libfaketime, which the hosts do not have; the clock of a container cannot be set."""
    assert "1 checks, 0 findings" in checks(site, 1, days)


@pytest.mark.soak
def test_a_thousand_checks_of_an_untouched_host_find_nothing(site: Site) -> None:
    said = checks(site, 1000, timeout=900)
    print(said)
    assert "1000 checks, 0 findings" in said


def pairs(count: int) -> list[tuple[Kind, Kind]]:
    """Return pairs of different groups and layers, those that restart the server first; always the same ones."""
    found = []
    for one, other in itertools.combinations(GROUPS, 2):
        for a, b in itertools.product(GROUPS[one], GROUPS[other]):
            restarts = [kind for kind in (a, b) if "restart" in kind.undo or "loose" in kind.inject]
            if not (a.alone or b.alone) and a.found[0] != b.found[0] and len(restarts) < 2:
                found.append((b, a) if b in restarts else (a, b))
    return random.Random(7).sample(found, count)


def assert_both(site: Site, first: Kind, second: Kind) -> None:
    """Assert that two kinds at once are both found, and nothing beside them."""
    try:
        site.sh(f"{first.inject}\n{second.inject}")
        code, said = site.drift()
    finally:
        site.sh(f"{second.undo}\n{first.undo}")
    assert_found(said, code, [first, second])
    site.assert_in_sync()


PAIRS = pairs(64)


@pytest.mark.parametrize(("first", "second"), PAIRS[:4], ids=lambda kind: kind.name)
def test_two_kinds_at_once_are_both_found(site: Site, first: Kind, second: Kind) -> None:
    assert_both(site, first, second)


@pytest.mark.soak
@pytest.mark.parametrize(("first", "second"), PAIRS[4:], ids=lambda kind: kind.name)
def test_two_kinds_at_once_are_both_found_again_and_again(site: Site, first: Kind, second: Kind) -> None:
    assert_both(site, first, second)


def test_on_a_host_that_cannot_be_written_to(site: Site) -> None:
    """Every new login, root's too, sees the whole tree read-only; the one connection is older."""
    site.sh("dropin /run/systemd/system/ssh.service.d ProtectSystem=strict; reload; systemctl restart ssh")
    try:
        for path in ("/etc/x", "/run/x", "/tmp/x", "/usr/local/lib/launch/x"):
            assert "Read-only" in site.host.run(f"touch {path}", check=False).stderr
        site.assert_in_sync()
        site.sh("sed -i s/Ring/Tree/ $ENV")
        code, said = site.drift()
        assert_found(said, code, [named("env: a value")])
    finally:
        site.sh("rm -r /run/systemd/system/ssh.service.d; put_back; systemctl restart ssh")
    site.assert_in_sync()


#: Prints every path with what a change of it would change, and every unit with its properties but the counters.
SNAPSHOT = r"""
import json, os, subprocess
files = {}
for folder, folders, names in os.walk("/"):
    folders[:] = [n for n in folders if os.path.join(folder, n) not in ("/proc", "/sys", "/dev")]
    for name in [*folders, *names]:
        path = os.path.join(folder, name)
        try:
            s = os.lstat(path)
        except OSError:
            continue
        files[path] = [s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns]
text = subprocess.run(["systemctl", "show", "--all", "*"], capture_output=True, text=True).stdout
text += "\n\nId=manager\n" + subprocess.run(["systemctl", "show", "--all"], capture_output=True, text=True).stdout
units = {}
for block in text.split("\n\n"):
    pairs = [line.partition("=")[::2] for line in block.strip().split("\n")]
    units[dict(pairs).get("Id")] = pairs
print(json.dumps([files, units]))
"""
#: What sshd (with PAM), sudo and the journal write; the journal's mark is of ``journalctl --sync``.
WRITTEN = (
    *("/var/log/journal", "/run/log/journal", "/run/systemd/journal"),
    *("/var/log/wtmp", "/var/log/lastlog", "/run/utmp", "/run/motd.dynamic", "/run/sudo"),
)
#: Counters, times of use and signs of life.
MOVING = (
    *("CPU", "Memory", "Tasks", "IO", "IP", "NFileDescriptorStore", "NJobs", "NInstalledJobs", "Progress"),
    "WatchdogTimestamp",
)


def snapshot(site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all files and all units of the host."""
    files, units = json.loads(site.sh(f"python3 - <<'END'\n{SNAPSHOT}\nEND"))
    kept = {path: state for path, state in files.items() if not path.startswith(WRITTEN) and path != "/run"}
    for unit, pairs in units.items():
        units[unit] = [[n, v] for n, v in pairs if not n.startswith(MOVING)]
    return kept, units


def test_looks_leave_no_trace(site: Site) -> None:
    site.sh("systemctl stop launch-drift.timer; sleep 0.2")
    try:
        before = snapshot(site)
        for verb in ("drift", "status", "plan"):
            site.launch(verb, *site.words)
        after = snapshot(site)
    finally:
        site.sh("systemctl start launch-drift.timer")
    for one, other in zip(before, after, strict=True):
        assert {key: (one.get(key), other.get(key)) for key in {*one, *other} if one.get(key) != other.get(key)} == {}
