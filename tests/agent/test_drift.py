"""What each difference is found as: in the right layer, as grave as it is, and nothing beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import drift_loaded, knowledge
from launcher.agent.check import judge
from launcher.agent.findings import LAYERS, Finding, counts, mute, order
from launcher.catalogue import environment
from tests.agent import drift_case as case

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[case.Live], object]

UNIT_PATH = case.RELEASE.unit.path
ENV_PATH = case.RELEASE.env_file.path
MANIFEST_PATH = case.RELEASE.manifest.path
ENV_TEXT = case.RELEASE.env_file.text


@pytest.fixture(autouse=True)
def known_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bundle fills in on a host."""
    monkeypatch.setattr(knowledge, "SETTINGS", frozenset(environment.settings()))
    monkeypatch.setattr(knowledge, "PREFIXES", tuple(environment.watched_prefixes()))
    additions = {"sglang": {k: sorted(v) if v else None for k, v in environment.additions("sglang").items()}}
    monkeypatch.setattr(knowledge, "ADDITIONS", additions)


def judged(change: Change) -> list[Finding]:
    live = case.Live(case.record(), case.observation(), case.shared())
    change(live)
    return order(judge(live.record, live.seen, live.shared))


def replaced(path: str, text: str) -> Change:
    return lambda c: c.seen["files"].update({path: case.file(text, 0o600 if path == ENV_PATH else 0o644)})


def state(path: str, **values: Any) -> Change:
    return lambda c: c.seen["files"].update({path: {"ctime": case.AT + 9, **values}})


def drop_in(path: str, *settings: tuple[str, str]) -> Change:
    def change(c: case.Live) -> None:
        seen = c.seen
        seen["drop_ins"][path] = {**case.file("x"), "settings": list(settings)}
        seen["loaded"]["DropInPaths"].append(path)

    return change


def in_unit(**values: Any) -> Change:
    return lambda c: c.seen["loaded"].update(values)


def in_processes(which: slice, **env: str) -> Change:
    return lambda c: [p["env"].update(env) for p in c.seen["processes"][which]]


def nowhere(which: slice, name: str) -> Change:
    return lambda c: [p["env"].pop(name) for p in c.seen["processes"][which]]


def of_main(**values: Any) -> Change:
    return lambda c: c.seen["processes"][0].update(values)


def gpu(**values: Any) -> Change:
    return lambda c: c.seen["facts"]["gpus"][3].update(values)


def nccl(**values: Any) -> Change:
    return lambda c: c.seen["nccl"].update(values)


def nccl_file(text: str) -> Change:
    return lambda c: c.seen["inputs"].update({"/etc/nccl.conf": {**case.file(text), "text": text}})


def manager(**env: str) -> Change:
    return lambda c: c.seen["manager"]["environment"].update(env)


def stranger(cgroup: str, **env: str) -> Change:
    job = {"pid": 9, "cgroup": cgroup, "since": case.AT + 70, "env": env, "title": "python -m sglang", "cut": False}
    return lambda c: c.seen["listeners"].append(job)


def both(*changes: Change) -> Change:
    return lambda c: [change(c) for change in changes]


TUNED = {n: v for n, v in case.MANIFEST["env"].items() if n.startswith("NCCL_")}
EVERY, WORKER, FIRST = slice(None), slice(2, 3), slice(1)

#: What was changed; what is found of it: layer, id, severity, and what it is about.
ROWS: dict[str, tuple[Change, list[tuple[str, str, str, str]]]] = {
    "unit edited": (
        replaced(UNIT_PATH, case.RELEASE.unit.text.replace("Restart=always", "Restart=no")),
        [("files", "unit-edited", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit edited in a comment": (
        replaced(UNIT_PATH, case.RELEASE.unit.text + "# note\n"),
        [("files", "unit-edited", "info", UNIT_PATH)],
    ),
    "unit settings in another order": (
        replaced(UNIT_PATH, case.RELEASE.unit.text.replace("Type=exec\n", "") + "Type=exec\n"),
        [("files", "unit-edited", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit missing": (
        state(UNIT_PATH, kind="absent"),
        [("files", "unit-missing", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit empty": (
        replaced(UNIT_PATH, "\n"),
        [("files", "unit-masked", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit masked": (
        state(UNIT_PATH, kind="link", target="/dev/null"),
        [("files", "unit-masked", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit linked": (
        state(UNIT_PATH, kind="link", target="/srv/x.service"),
        [("files", "unit-linked", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit is a folder": (
        state(UNIT_PATH, kind="other", mode=0o755, owner="0:0"),
        [("files", "unit-no-file", "critical", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit unreadable": (
        state(UNIT_PATH, kind="unreadable", reason="I/O error"),
        [("files", "unit-unreadable", "unknown", UNIT_PATH), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "unit mode": (
        lambda c: c.seen["files"][UNIT_PATH].update(mode=0o666),
        [("files", "unit-mode", "warning", UNIT_PATH)],
    ),
    "env value": (
        replaced(ENV_PATH, ENV_TEXT.replace("'Ring'", "'Tree'")),
        [("files", "env-file-edited", "critical", f"{ENV_PATH} NCCL_ALGO")],
    ),
    "env variable gone": (
        replaced(ENV_PATH, ENV_TEXT.replace("NCCL_ALGO='Ring'\n", "")),
        [("files", "env-file-edited", "critical", f"{ENV_PATH} NCCL_ALGO")],
    ),
    "env variable more": (
        replaced(ENV_PATH, ENV_TEXT + "FOO='1'\n"),
        [("files", "env-file-edited", "critical", f"{ENV_PATH} FOO")],
    ),
    "env broken": (replaced(ENV_PATH, ENV_TEXT + "\0"), [("files", "env-file-broken", "critical", ENV_PATH)]),
    "env missing": (state(ENV_PATH, kind="absent"), [("files", "env-file-missing", "critical", ENV_PATH)]),
    "env readable by all": (
        lambda c: c.seen["files"][ENV_PATH].update(mode=0o644),
        [("files", "env-file-mode", "warning", ENV_PATH)],
    ),
    "env in another encoding": (replaced(ENV_PATH, "# by hand\n" + ENV_TEXT.replace("'", '"')), []),
    "manifest edited": (
        lambda c: c.seen["files"].update({MANIFEST_PATH: case.file("{}", 0o640)}),
        [("files", "manifest-edited", "critical", MANIFEST_PATH)],
    ),
    "manifest missing": (
        state(MANIFEST_PATH, kind="absent"),
        [("files", "manifest-missing", "critical", MANIFEST_PATH)],
    ),
    "secret missing": (state(case.SECRET, kind="absent"), [("files", "secret-missing", "critical", case.SECRET)]),
    "secret readable": (
        lambda c: c.seen["files"][case.SECRET].update(mode=0o644),
        [("files", "secret-mode", "warning", case.SECRET)],
    ),
    "agent edited": (
        lambda c: c.shared[0].update(seen=case.file("other")),
        [("files", "agent-edited", "critical", "/usr/local/lib/launch/agent.py")],
    ),
    "stronger namesake": (
        lambda c: c.seen["namesakes"].update({f"/run/systemd/transient/{case.UNIT}": case.file("x")}),
        [
            ("files", "unit-shadowed", "critical", f"/run/systemd/transient/{case.UNIT}"),
            ("loaded", "reload-pending", "warning", case.UNIT),
        ],
    ),
    "weaker namesake": (
        lambda c: c.seen["namesakes"].update({f"/run/systemd/system/{case.UNIT}": case.file("x")}),
        [("files", "unit-namesake", "warning", f"/run/systemd/system/{case.UNIT}")],
    ),
    "drop-in that replaces the command": (
        drop_in("/etc/systemd/system/service.d/x.conf", ("ExecStart", ""), ("ExecStart", "/bin/x")),
        [("files", "drop-in", "critical", "/etc/systemd/system/service.d/x.conf")],
    ),
    "drop-in that limits": (
        drop_in("/run/systemd/system/launch-.service.d/x.conf", ("LimitNOFILE", "9")),
        [("files", "drop-in", "warning", "/run/systemd/system/launch-.service.d/x.conf")],
    ),
    "drop-in without a setting": (
        drop_in("/etc/systemd/system/service.d/x.conf"),
        [("files", "drop-in", "info", "/etc/systemd/system/service.d/x.conf")],
    ),
    "drop-in not loaded": (
        lambda c: c.seen["drop_ins"].update({"/etc/x.conf": {**case.file("x"), "settings": [("Nice", "1")]}}),
        [("files", "drop-in", "warning", "/etc/x.conf"), ("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "drop-in gone, still loaded": (
        lambda c: c.seen["loaded"]["DropInPaths"].append("/etc/gone.conf"),
        [("loaded", "reload-pending", "warning", case.UNIT)],
    ),
    "vendor's drop-in changed": (
        drop_in("/usr/lib/systemd/system/service.d/10-vendor.conf", ("Nice", "2")),
        [("files", "drop-in", "warning", "/usr/lib/systemd/system/service.d/10-vendor.conf")],
    ),
    "not enabled": (
        lambda c: c.seen.update(wanted=False),
        [("files", "not-enabled", "warning", f"/etc/systemd/system/launch.target.wants/{case.UNIT}")],
    ),
    "a change cut short": (
        lambda c: c.seen.update(unfinished=True),
        [("files", "change-unfinished", "critical", "/etc/launch/pending/kimi_k2_5_int4.json")],
    ),
    "only the time of change": (in_unit(NeedDaemonReload=True), []),
    "loaded environment": (
        in_unit(Environment=["NCCL_P2P_DISABLE=1", "MY_TOKEN=hush"]),
        [("loaded", "loaded-environment", "critical", f"{case.UNIT} Environment")],
    ),
    "loaded memory": (in_unit(MemoryMax=1), [("loaded", "loaded-setting", "warning", f"{case.UNIT} MemoryMax")]),
    "loaded command": (
        in_unit(ExecStart=[["/bin/x", ["/bin/x"], False, 9, 9, 9]]),
        [("loaded", "loaded-command", "critical", f"{case.UNIT} ExecStart")],
    ),
    "another start of the same": (
        in_unit(ExecStart=[["/usr/bin/python3", ["/usr/bin/python3", "guard", "--", "x"], False, 7, 8, 9]]),
        [],
    ),
    "loaded elsewhere": (
        in_unit(FragmentPath="/run/x.service"),
        [("loaded", "loaded-elsewhere", "critical", case.UNIT)],
    ),
    "not loaded": (in_unit(LoadState="bad-setting"), [("loaded", "not-loaded", "critical", case.UNIT)]),
    "stopped": (
        both(
            in_unit(ActiveState="inactive", SubState="dead", MainPID=0),
            lambda c: c.seen.update(processes=[], nccl=None),
        ),
        [("processes", "not-running", "critical", case.UNIT)],
    ),
    "starting": (
        in_unit(ActiveState="activating", SubState="start-post"),
        [("processes", "starting", "info", case.UNIT)],
    ),
    "everywhere another value": (
        in_processes(EVERY, NCCL_ALGO="Tree"),
        [("processes", "env-different", "critical", "NCCL_ALGO")],
    ),
    "a worker has another value": (
        in_processes(WORKER, NCCL_ALGO="Tree"),
        [("processes", "env-different", "critical", "NCCL_ALGO")],
    ),
    "a worker lacks one": (nowhere(WORKER, "NCCL_PROTO"), [("processes", "env-missing", "critical", "NCCL_PROTO")]),
    "a worker has one more": (
        in_processes(WORKER, NCCL_P2P_DISABLE="1"),
        [("processes", "env-extra", "critical", "NCCL_P2P_DISABLE")],
    ),
    "what SGLang adds by itself": (in_processes(WORKER, NCCL_CUMEM_ENABLE="0", CUDA_MODULE_LOADING="AUTO"), []),
    "preloaded": (
        in_processes(EVERY, LD_PRELOAD="/usr/lib/libfaketime.so.1"),
        [("processes", "env-extra", "warning", "LD_PRELOAD")],
    ),
    "secret missing in a worker": (nowhere(WORKER, "HF_TOKEN"), [("processes", "env-missing", "critical", "HF_TOKEN")]),
    "cut environment": (
        lambda c: c.seen["processes"][2].update(cut=True, env={"INVOCATION_ID": "c0ffee"}),
        [("processes", "env-cut", "unknown", "sglang::scheduler_TP1")],
    ),
    "unreadable environment": (
        lambda c: c.seen["processes"][2].update(cut=True, env=None),
        [("processes", "env-unreadable", "unknown", "sglang::scheduler_TP1")],
    ),
    "other release runs": (
        both(
            lambda c: [p["env"].update(LAUNCH_DIGEST="0" * 16) for p in c.seen["processes"]],
            lambda c: c.seen.update(mark=c.seen["mark"].replace(case.RELEASE.digest.encode(), b"0" * 16)),
        ),
        [
            ("processes", "env-different", "critical", "LAUNCH_DIGEST"),
            ("processes", "other-release", "critical", "LAUNCH_DIGEST"),
        ],
    ),
    "past the guard": (lambda c: c.seen.update(mark=None), [("processes", "unguarded", "critical", "guard")]),
    "another command": (
        of_main(argv=["/bin/other", "-m", "x"]),
        [("processes", "argv-different", "critical", "command")],
    ),
    "a script's interpreter before the command": (of_main(argv=["/bin/python3", *case.MANIFEST["argv"]]), []),
    "a title in place of the command": (of_main(argv=["VLLM::APIServer"]), []),
    "survivor": (
        in_processes(WORKER, INVOCATION_ID="dead"),
        [("processes", "survivor", "warning", "sglang::scheduler_TP1")],
    ),
    "limit": (
        of_main(limits={"Max locked memory": "65536 65536", "Max open files": "524288 524288"}),
        [("processes", "limit-changed", "warning", "Max locked memory")],
    ),
    "libnccl replaced": (
        of_main(libraries=[{"path": "/opt/venv/lib/libnccl.so.2", "gone": True}]),
        [("processes", "library-replaced", "warning", "/opt/venv/lib/libnccl.so.2")],
    ),
    "other libnccl": (
        of_main(libraries=[{"path": "/opt/other/libnccl.so.2", "gone": False}]),
        [("processes", "library-other", "warning", "/opt/other/libnccl.so.2")],
    ),
    "interpreter replaced": (
        lambda c: c.seen["interpreter"].update(sha256="cd"),
        [("processes", "interpreter-replaced", "warning", case.DEPLOYMENT.engine.python)],
    ),
    "interpreter gone": (
        lambda c: c.seen["interpreter"].update(sha256="", reason="No such file"),
        [("processes", "interpreter-replaced", "critical", case.DEPLOYMENT.engine.python)],
    ),
    "interpreter replaced under the server": (
        of_main(exe="/usr/bin/python3.11 (deleted)"),
        [("processes", "interpreter-replaced", "warning", case.DEPLOYMENT.engine.python)],
    ),
    "set-environment": (
        manager(NCCL_P2P_DISABLE="1"),
        [("inputs", "manager-environment", "critical", "NCCL_P2P_DISABLE")],
    ),
    "set-environment, unknown name": (
        manager(VLLM_UNHEARD_OF="hush"),
        [("inputs", "manager-environment", "warning", "VLLM_UNHEARD_OF")],
    ),
    "set-environment, not watched": (manager(EDITOR="vi"), []),
    "DefaultEnvironment, not read yet": (
        lambda c: c.seen["manager"]["defaults"].update({"/etc/systemd/system.conf": ["NCCL_X"]}),
        [("inputs", "manager-environment", "warning", "NCCL_X")],
    ),
    "nccl.conf": (
        nccl_file("NCCL_SHM_DISABLE=1\n"),
        [("inputs", "nccl-file", "critical", "/etc/nccl.conf NCCL_SHM_DISABLE")],
    ),
    "nccl.conf, beaten by the release": (
        nccl_file("NCCL_ALGO=Tree\n"),
        [("inputs", "nccl-file", "info", "/etc/nccl.conf NCCL_ALGO")],
    ),
    "nccl.conf, comments": (nccl_file("# NCCL_ALGO=Tree\n"), []),
    "nccl.conf, block left behind": (
        nccl_file("# launch kimi_k2_5_int4 begin: written by launch, do not edit\n# launch kimi_k2_5_int4 end\n"),
        [("inputs", "nccl-block", "warning", "/etc/nccl.conf")],
    ),
    "nccl.conf, block missing": (
        lambda c: c.record["needs"]["nccl"].update(block=True),
        [("inputs", "nccl-block", "warning", "/etc/nccl.conf")],
    ),
    "ld.so.preload": (
        lambda c: c.seen["inputs"].update({"/etc/ld.so.preload": case.file("x")}),
        [("inputs", "preload", "warning", "/etc/ld.so.preload")],
    ),
    "contradicted by NCCL": (
        nccl(proved=["NCCL_PROTO"], contradicted=["NCCL_ALGO: NCCL_ALGO set by environment to Tree"]),
        [("library", "nccl-contradicted", "critical", "NCCL_ALGO")],
    ),
    "NCCL tells less": (nccl(proved=["NCCL_ALGO"]), [("library", "nccl-not-proved", "warning", "NCCL_PROTO")]),
    "NCCL's version": (nccl(versions=["2.30.7"]), [("library", "nccl-version", "warning", "version")]),
    "NCCL's log gone": (nccl(versions=[], proved=[]), [("library", "nccl-silent", "unknown", "log")]),
    "power limit": (
        gpu(power_limit_w=450),
        [
            ("host", "hw-power-limit", "warning", ""),
            ("host", "power-limit-changed", "warning", "power limit in W of GPU 3"),
        ],
    ),
    "driver": (gpu(driver="590.1"), [("host", "driver-changed", "warning", "driver of GPU 3")]),
    "a GPU gone": (
        lambda c: c.seen["facts"]["gpus"].pop(),
        [("host", "gpu-changed", "critical", "GPU at 0:7"), ("host", "hw-gpu-count", "warning", "")],
    ),
    "PCIe width": (gpu(pcie_width=4), [("host", "hw-pcie-width", "warning", "")]),
    "kernel": (
        lambda c: c.seen["facts"].update(kernel={"version": "6.9"}),
        [("host", "kernel-changed", "warning", "kernel")],
    ),
    "package": (
        lambda c: c.seen["facts"]["engine"]["versions"].update(torch="2.15"),
        [("host", "package-changed", "warning", "package torch")],
    ),
    "GPUs cannot be read": (
        lambda c: c.seen["facts"].update(gpus=None, unknown={"gpus": "nvidia-smi hangs"}),
        [("host", "hw-gpus", "unknown", "")],
    ),
    "stranger on the port": (
        stranger("/user.slice/user-1000.slice/session-4.scope"),
        [("strays", "port-taken", "critical", "port 8000")],
    ),
    "stranger on a GPU": (
        lambda c: c.seen["gpu_jobs"].append(
            {
                "pid": 9,
                "cgroup": "/system.slice/docker-ab.scope",
                "since": 1,
                "env": {},
                "title": "x",
                "cut": True,
                "gpu": 3,
            }
        ),
        [("strays", "gpu-taken", "critical", "GPU 3")],
    ),
    "restarted by itself": (in_unit(NRestarts=2), [("restarts", "restarted", "warning", case.UNIT)]),
}


def test_nothing_is_found_where_nothing_differs() -> None:
    assert judged(lambda _: None) == []


@pytest.mark.parametrize(("change", "expected"), ROWS.values(), ids=ROWS.keys())
def test_each_difference(change: Change, expected: list[tuple[str, str, str, str]]) -> None:
    found = judged(change)
    assert sorted((f.layer, f.id, f.severity, f.subject) for f in found) == sorted(expected)
    told = json.dumps(found)
    assert "very-secret" not in told
    assert "hush" not in told
    for one in found:
        assert one.layer in LAYERS
        assert one.text
        assert one.cause or one.severity in {"unknown", "info"}
        assert one.mend or one.severity in {"unknown", "info"}


def test_a_finding_says_both_values_who_shows_it_since_when_and_why() -> None:
    (found,) = judged(in_processes(WORKER, NCCL_ALGO="Tree"))
    assert (found.is_, found.should, found.since) == ("Tree", "Ring", "2026-09-21T14:14:20Z")
    assert found.where == ("process 717 (sglang::scheduler_TP1)",)
    assert "the engine, or code that it loads" in found.cause
    assert found.fix == "restart"


CGROUPS = {
    "/user.slice/user-0.slice/session-12.scope": "by hand in a login session",
    "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service": "user's own systemd",
    "/system.slice/docker-0123.scope": "container",
    "/machine.slice/libpod-0123.scope": "container",
    "/kubepods.slice/cri-containerd-01.scope": "container",
    "/system.slice/run-r0123.service": "systemd-run",
    "/system.slice/mine.service": "unit mine.service",
    "/": "outside any unit",
    "": "cannot be read",
}


@pytest.mark.parametrize(("cgroup", "words"), CGROUPS.items())
def test_a_stranger_is_told_by_how_it_was_started(cgroup: str, words: str) -> None:
    (found,) = judged(stranger(cgroup))
    assert words in found.cause


def test_a_stranger_is_told_by_what_it_carries() -> None:
    assert "it carries all" in judged(stranger("/x", **TUNED))[0].text
    without = {n: v for n, v in TUNED.items() if n != "NCCL_ALGO"}
    assert "lacks or changes NCCL_ALGO" in judged(stranger("/x", **without))[0].text


@pytest.mark.parametrize(
    ("finding", "until", "muted"),
    [
        ("limit-changed", "2026-12-31", True),
        ("limit-changed Max locked memory", "2026-12-31", True),
        ("limit-changed Max open files", "2026-12-31", False),
        ("drop-in", "2026-12-31", False),
        ("limit-changed", "2026-11-29", True),
        ("limit-changed", "2026-11-28", False),
    ],
)
def test_an_accepted_difference_is_shown_and_does_not_count(finding: str, until: str, *, muted: bool) -> None:
    found = judged(ROWS["limit"][0])
    (one,) = mute(found, [{"finding": finding, "reason": "known", "until": until}], "2026-11-29")
    assert counts(one) is not muted
    assert ("known" in one.muted) is muted


def test_what_cannot_be_told_counts_where_it_may_hide_anything() -> None:
    (cut,) = judged(ROWS["cut environment"][0])
    (hardware,) = judged(ROWS["GPUs cannot be read"][0])
    assert counts(cut)
    assert not counts(hardware)


def test_no_secret_is_shown_of_a_foreign_command() -> None:
    argv = ["/bin/x", "--api-key", "hush", "--token=hush", "--port", "1"]
    assert drift_loaded.shown("ExecStart", [["/bin/x", argv, False]]) == "/bin/x --api-key … --token=… --port 1"
