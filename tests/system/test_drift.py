"""Drift of every kind, on a real host: found in its layer, named, mended where it is ours; the harmless like is not."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent.findings import counts
from launcher.cli import main
from tests.fleet import access
from tests.system.drift_kinds import FURNISH, KEEP, KEEP_OTHER, KINDS, KIT, UNFURNISH, Kind
from tests.system.tool import WIPE, Launch, assert_tuned, look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fleet import Fleet, FleetHost

pytestmark = pytest.mark.fleet

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
        """Return the exit code of ``launch drift`` and what it says of the host; in this process, for speed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(["drift", *self.words, *more, "--json", *self.launch.aim(["h1"])])
        (one,) = json.loads(out.getvalue())["deployments"]
        return code, one["hosts"][0]

    def assert_in_sync(self) -> None:
        """Assert that nothing counts."""
        code, said = self.drift()
        assert (code, said["outcome"], counting(said)) == (0, "in sync", []), told(said)

    def fix(self, *more: str, check: int | None = 0) -> str:
        """Run ``launch drift --fix`` as a user does and return what it says."""
        return self.launch("drift", *self.words, "--fix", *more, check=check).stdout


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
    words = ("+hw=h200x2", "+spec=eagle3_2step", "engine.tensor_parallel=2", "nccl=pcie_ll_ring")
    site = Site(fleet.hosts[0], Launch(fleet), (*words, f"secrets.env.HF_TOKEN=file:{token}"))
    site.host.run(WIPE)
    files = {"nvidia-smi": FACTS / "stand_in"} | {p.name: p for p in (FACTS / "recorded/h200x2").iterdir()}
    copies = "".join(
        f"cat > {shlex.quote('/opt/gpu/' + name)} <<'END'\n{path.read_text()}\nEND\n" for name, path in files.items()
    )
    site.sh(f"mkdir -p /opt/gpu\n{copies}\n{FURNISH}")
    site.launch("up", *site.words, "nccl.algo=Tree", "nccl.proto=Simple", "--yes")
    site.sh(KEEP_OTHER)
    site.launch("up", *site.words, "--yes")
    site.sh(KEEP)
    yield site
    site.host.run(f"{WIPE}\n{UNFURNISH}")


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
            assert all(f["mend"] for f in alike if f["layer"] not in {"library"}), text
    others = {f"{f['layer']}/{f['id']}" for f in counting(said)} - allowed
    assert not others, f"more than expected: {others}\n{told(said)}"
    assert code == max(kind.code for kind in kinds), told(said)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_kind_is_found_and_its_harmless_like_is_not(site: Site, kind: Kind) -> None:
    try:
        site.sh(kind.inject)
        code, said = site.drift()
    finally:
        site.sh(f"{kind.undo}\n{kind.control}")
    try:
        calm = site.drift()
    finally:
        site.sh(kind.undo_control)
    assert_found(said, code, [kind])
    assert calm[0] == 0, f"after the undo, or by the control:\n{told(calm[1])}"
    assert not counting(calm[1]), told(calm[1])


def test_afterwards_nothing_is_left(site: Site) -> None:
    site.assert_in_sync()
    assert_tuned(look(site.host))
