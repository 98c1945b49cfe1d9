"""The host checks itself: journal, metrics and alert, by its own timer and without us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet import Fleet
from tests.promtool import check_metrics
from tests.system.tool import REFERENCE, UNIT, WIPE, Launch, journal, look, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

DRIFT = "launch-drift.service"
FOLDER = "/var/lib/prometheus/node-exporter"
#: An alert that leaves a line for each time that it was started, and node_exporter's folder, of a user of its own.
FURNISH = f"""
rm -rf /var/tmp/pages {FOLDER} && mkdir -p {FOLDER} && chown llm {FOLDER} && chmod 755 {FOLDER}
cat > /etc/systemd/system/page@.service <<'EOF'
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo %i >> /var/tmp/pages'
EOF
rm -rf /etc/systemd/system/{DRIFT}.d && systemctl daemon-reload
"""
ALERT = "drift.alert='page@{deployment}.service'"
SUITES = {"bullseye": "247", "trixie": "257"}


def deploy(launch: Launch, host: FleetHost, *words: str) -> None:
    """A server that is watched, by hand from here on."""
    host.run(FURNISH)
    launch("up", *REFERENCE, ALERT, *words, "--yes")
    assert host.run("systemctl is-active launch-drift.timer").stdout == "active\n"
    # A check that has begun by itself is over then.
    host.run(f"systemctl stop launch-drift.timer {DRIFT}; rm -rf /run/launch-drift")


def run(host: FleetHost, *, check: bool = True) -> str:
    """Check the host once; returns the lines that the journal has of this run."""
    before = journal(host, DRIFT)
    done = host.run(f"systemctl start {DRIFT}", check=False)
    lines = journal(host, DRIFT)[len(before) :]
    if "systemd 247 " in host.run("systemctl --version").stdout:
        # It does not apply LogLevelMax= to lines of its own.
        lines = "".join(line for line in lines.splitlines(keepends=True) if line.startswith("launch: "))
    assert not check or done.returncode == 0, lines + done.stderr
    assert "Traceback" not in lines
    return lines


def pages(host: FleetHost) -> list[str]:
    return host.run("sleep 0.5; cat /var/tmp/pages 2>/dev/null; true").stdout.split()


def metrics(host: FleetHost) -> dict[str, str]:
    """Series and values of the metrics file, without the prefix and the deployment."""
    text = host.run(f"cat {FOLDER}/launch.prom").stdout
    assert check_metrics(text) == ""
    lines = [line.removeprefix("launch_") for line in text.splitlines() if not line.startswith("#")]
    return dict(line.replace('deployment="kimi_k2_5_int4"', "").replace("{,", "{").rsplit(" ", 1) for line in lines)


def assert_watched(launch: Launch, host: FleetHost) -> None:
    """From a quiet run over drift and a crash to the end of it."""
    deploy(launch, host)
    assert "no drift" in run(host)
    assert run(host) == ""
    seen = metrics(host)
    assert seen['drift_findings{severity="critical"}'] == seen['drift_findings{severity="warning"}'] == "0"
    assert (seen["deployment_up{}"], seen["processes{}"], seen["processes_proven{}"]) == ("1", "4", "4")
    assert pages(host) == []

    folder = f"/etc/systemd/system/{UNIT}.d"
    host.run(f"mkdir {folder} && echo '[Unit]\nDocumentation=man:x' > {folder}/x.conf && systemctl daemon-reload")
    lines = [line for line in run(host).splitlines() if "x.conf" in line and line.startswith("launch: drift: ")]
    assert lines
    assert set(lines) <= set(journal(host).splitlines())  # under the server's own unit too
    assert pages(host) == ["kimi_k2_5_int4"]
    assert "x.conf" in run(host)
    assert pages(host) == ["kimi_k2_5_int4"]
    seen = metrics(host)
    assert sum(int(value) for name, value in seen.items() if name.startswith("drift_findings")) >= 1

    main = look(host)["MainPID"]
    host.run(f"kill -9 {main}")
    wait_for(host, "active", other_than=main)
    run(host)
    assert len(pages(host)) == 2
    run(host)
    assert len(pages(host)) == 2
    assert metrics(host)["unit_restarts{}"] == "1"

    host.run(f"systemctl stop {UNIT}")
    lines = run(host).splitlines()
    assert metrics(host)["deployment_up{}"] == "0"
    assert [line for line in lines if "x.conf" in line]
    # Also without a process that the journal could find the unit by.
    assert {line for line in lines if "x.conf" in line} <= set(journal(host).splitlines())


def test_watched(launch: Launch, host: FleetHost) -> None:
    assert_watched(launch, host)


@pytest.mark.parametrize("suite", SUITES)
def test_watched_by_other_versions_of_systemd(suite: str) -> None:
    with Fleet.boot(1, suite=suite) as fleet:
        (host,) = fleet.hosts
        assert SUITES[suite] in host.run("systemctl --version").stdout.splitlines()[0]
        host.run(WIPE)
        assert_watched(Launch(fleet), host)
        for unit in (DRIFT, "launch-drift.timer"):
            done = host.run(f"systemd-analyze verify --man=no /etc/systemd/system/{unit} 2>&1", check=False)
            assert unit not in done.stdout


def test_what_was_applied_is_not_what_would_start(launch: Launch, host: FleetHost) -> None:
    deploy(launch, host)
    assert "no drift" in run(host)
    host.run("sed -i s/16777216/4194304/ /etc/launch/kimi_k2_5_int4/*.env")
    said = run(host)
    assert ".env" in said
    assert int(metrics(host)['drift_findings{severity="critical"}']) >= 1
    assert pages(host) == ["kimi_k2_5_int4"]
    launch("up", *REFERENCE, ALERT, "--yes")
    assert "no drift" in run(host)
    assert metrics(host)['drift_findings{severity="critical"}'] == "0"


def test_no_check_while_the_host_is_changed(launch: Launch, host: FleetHost) -> None:
    deploy(launch, host)
    host.run("flock /run/launch.lock sleep 3 > /dev/null 2>&1 & sleep 0.5")
    assert run(host) == "launch: drift: launch is changing this host; it is not checked this time\n"
    host.run("sleep 3")
    assert "no drift" in run(host)


@pytest.fixture
def tiny(host: FleetHost) -> Iterator[FleetHost]:
    """A host whose node_exporter has a file system of its own that is nearly full."""
    yield host
    host.run(f"umount {FOLDER}", check=False)


def test_a_full_disk_leaves_the_last_metrics(launch: Launch, tiny: FleetHost) -> None:
    deploy(launch, tiny)
    tiny.run(f"mount -t tmpfs -o size=16k tmpfs {FOLDER}")
    run(tiny)
    before = tiny.run(f"cat {FOLDER}/launch.prom").stdout
    tiny.run(f"head -c 1M /dev/zero > {FOLDER}/filler", check=False)
    said = run(tiny, check=False)
    assert "launch.prom cannot be written: No space left on device" in said
    assert tiny.run(f"cat {FOLDER}/launch.prom; ls -A {FOLDER}").stdout == f"{before}filler\nlaunch.prom\n"
    tiny.run(f"rm {FOLDER}/filler")
    assert "cannot be written" not in run(tiny)
    assert tiny.run(f"cat {FOLDER}/launch.prom").stdout != before


def test_another_folder_needs_a_drop_in(launch: Launch, host: FleetHost) -> None:
    deploy(launch, host, "drift.textfile=/srv/collector/launch.prom")
    assert "cannot be written" not in run(host)  # no such folder
    host.run("mkdir /srv/collector")
    try:
        assert "launch.prom cannot be written: Read-only file system; let launch-drift.service" in run(
            host, check=False
        )
        host.run(f"mkdir /etc/systemd/system/{DRIFT}.d")
        host.run(f"echo '[Service]\nReadWritePaths=/srv/collector' > /etc/systemd/system/{DRIFT}.d/collector.conf")
        host.run("systemctl daemon-reload")
        assert "cannot be written" not in run(host)
        assert host.run("ls -A /srv/collector").stdout == "launch.prom\n"
    finally:
        host.run(f"rm -rf /srv/collector /etc/systemd/system/{DRIFT}.d; systemctl daemon-reload")


WRITES = """\
for folder in / /etc /etc/systemd/system /etc/launch /usr /boot /root /home /srv /var /var/tmp /tmp \\
    /run /run/user /run/systemd/system /sys /proc/sys/vm; do
    touch $folder/x-probe 2>/dev/null && echo WRITTEN $folder
done
mount -o remount,rw / 2>/dev/null && echo REMOUNTED
exit 0
"""


def test_it_can_change_nothing(launch: Launch, host: FleetHost) -> None:
    deploy(launch, host)
    host.run(f"cat > /var/tmp/writes.sh <<'EOF'\n{WRITES}EOF\nmkdir /etc/systemd/system/{DRIFT}.d")
    words = "[Service]\nLogLevelMax=info\nExecStart=\nExecStart=/bin/sh -v /var/tmp/writes.sh"
    host.run(f"echo '{words}' > /etc/systemd/system/{DRIFT}.d/x.conf; systemctl daemon-reload")
    try:
        said = run(host)
    finally:
        host.run(f"rm -rf /etc/systemd/system/{DRIFT}.d; systemctl daemon-reload")
    assert "touch $folder" in said
    assert [line for line in said.splitlines() if line.startswith(("WRITTEN", "REMOUNTED"))] == []
