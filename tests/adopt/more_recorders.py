"""Runs what no shell runs: compose files by docker compose, units by the systemd of a host of the fleet."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.adopt.corpus import CORPUS, Case, Started, cases
from tests.adopt.recorder import WORLDS, RecordError, by_hand, common, store
from tests.fleet import Fleet

if TYPE_CHECKING:
    from tests.adopt.recorder import World
    from tests.fleet import FleetHost

ENGINE = re.compile(r"vllm|sglang")
#: What systemd gives every service, and what only its user or its output adds.
OF_SYSTEMD = re.compile(
    r"LANG|PATH|HOME|LOGNAME|USER|SHELL|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|MEMORY_PRESSURE_.*|_|SHLVL|PWD|OLDPWD"
    r"|VIRTUAL_ENV"
)


def compose_tool() -> str | None:
    """Return docker compose's own program, None where it is not installed."""
    return os.environ.get("LAUNCH_DOCKER_COMPOSE") or shutil.which("docker-compose")


def record_compose(case: Case, tool: str) -> list[Started]:
    """Return the services of a compose file that are servers, as docker compose itself resolves them."""
    first, second = (_resolved(case, tool, world) for world in WORLDS)
    servers = [common(*pair) for pair in zip(first, second, strict=True)]
    if "inner" not in case.head:
        return servers
    return [
        Started(tuple(part["argv"]), one.env | part.get("env", {}), image=one.image)
        for one, part in zip(servers, case.head["inner"], strict=True)
    ]


def _resolved(case: Case, tool: str, world: World) -> list[Started]:
    with tempfile.TemporaryDirectory(prefix="launch-corpus-") as name:
        folder = Path(name) / "case"
        shutil.copytree(case.folder, folder)
        done = subprocess.run(
            [tool, "-f", str(folder / case.input.name), "config", "--format", "json"],
            env=world.environment() | world.given(case),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if done.returncode:
        raise RecordError(f"{case.name}: {done.stderr}")
    services = json.loads(done.stdout)["services"]
    return [
        Started(
            argv=tuple(_undollared(word) for part in ("entrypoint", "command") for word in service.get(part) or ()),
            env={name: _undollared(value) for name, value in service.get("environment", {}).items()},
            image=service["image"],
        )
        for _, service in sorted(services.items())
        if ENGINE.search(service["image"])
    ]


def _undollared(value: str | None) -> str | None:
    """`config` prints a file that can be read again, where a dollar is written twice."""
    return value and value.replace("$$", "$")


def record_unit(case: Case, host: FleetHost) -> list[Started]:
    """Start a unit on a host, each instance of a template; return what its servers were started with."""
    _install(case, host)
    instances = [str(one) for one in case.head.get("instances", ("",))]
    seen = [_start(case, host, case.input.name.replace("@.", f"@{one}.")) for one in instances]
    host.run(f"rm -rf /etc/systemd/system/{case.input.name} /etc/systemd/system/{case.input.name}.d")
    server = seen[0] if len(seen) == 1 else common(*seen)
    return by_hand(case, [server]) if "split" in case.head else [server]


def _install(case: Case, host: FleetHost) -> None:
    units = host.root / "etc/systemd/system"
    recorder = CORPUS / "bin" / "recorder"
    shutil.copyfile(case.input, units / case.input.name)
    for folder in case.folder.glob("*.d"):
        shutil.copytree(folder, units / folder.name, dirs_exist_ok=True)
    asked: dict[str, str] = case.head.get("install", {})
    files = {"/rec/.keep": b""} | {at: (case.folder / file).read_bytes() for file, at in asked.items()}
    for program in case.head.get("programs", ()):
        activate = f"export VIRTUAL_ENV={Path(program).parent.parent} PATH={Path(program).parent}:$PATH\n".encode()
        files[program] = activate if program.endswith("/activate") else recorder.read_bytes()
    for name in case.head.get("standins", ()):
        files[f"/usr/local/bin/{name}"] = (CORPUS / "bin" / name).read_bytes()
    for at, content in files.items():
        target = host.root / at.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o644 if at.startswith("/etc/") else 0o755)
    (host.root / "rec").chmod(0o1777)
    host.run("id llm >/dev/null 2>&1 || useradd --create-home llm; systemctl daemon-reload")


def _start(case: Case, host: FleetHost, unit: str) -> Started:
    host.run(f"rm -rf /rec/started.*; systemctl start --no-block {unit}")
    deadline = time.monotonic() + 15
    while not (found := list((host.root / "rec").glob("started.*/stdout"))):
        if time.monotonic() > deadline:
            raise RecordError(f"{case.name}: no start: {host.run(f'journalctl -u {unit} -n 20', check=False).stdout}")
        time.sleep(0.05)
    time.sleep(0.1)
    folder = found[0].parent
    host.run(f"systemctl stop {unit}; systemctl reset-failed {unit} 2>/dev/null; true")
    argv, environ = ((folder / kind).read_bytes().decode().split("\0")[:-1] for kind in ("argv", "environ"))
    whole = dict(entry.split("=", 1) for entry in environ)
    env: dict[str, str | None] = {name: value for name, value in whole.items() if not OF_SYSTEMD.fullmatch(name)}
    if "PATH=" in case.text():
        env["PATH"] = whole["PATH"]
    user, cwd, stdout = ((folder / kind).read_text().strip() for kind in ("user", "cwd", "stdout"))
    return Started(
        argv=tuple(argv),
        env=env,
        user=user if re.search(r"(?m)^User=", case.text()) else "",
        working_directory="" if cwd == "/" else cwd,
        log_file=stdout if stdout.startswith("/") and not stdout.startswith("/dev/") else "",
    )


def _compose(tool: str) -> None:
    version = subprocess.run([tool, "version", "--short"], capture_output=True, text=True, check=True).stdout.strip()
    for case in cases():
        if case.how == "compose":
            store(case, record_compose(case, tool), f"docker compose {version}")


def _units() -> None:
    with Fleet.boot(1) as fleet:
        host = fleet.hosts[0]
        version = host.run("systemctl --version").stdout.split()[1]
        for case in cases():
            if case.how == "unit":
                try:
                    store(case, record_unit(case, host), f"systemd {version}")
                except RecordError as err:
                    print(err)


def main(kinds: list[str]) -> None:
    """Record `compose` files and `unit` files anew."""
    if "compose" in kinds and (tool := compose_tool()):
        _compose(tool)
    if "unit" in kinds:
        _units()


if __name__ == "__main__":
    main(sys.argv[1:])
