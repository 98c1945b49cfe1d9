"""A server in a container of podman: the command of its unit, what goes with it, and what stays as it was without."""

from __future__ import annotations

import pytest

from launcher.agent.knowledge import watched
from launcher.agent.processes import unit_cgroup
from launcher.cli.prepare import Programs
from launcher.errors import ConfigError
from launcher.host import bundle
from launcher.host.requests import needs, preflight
from launcher.render import render, sbatch
from launcher.render.exports import export
from tests.composing import compose

IMAGE = f"a/b@sha256:{'0' * 64}"
BASE = ("model=tiny", "engine=vllm", "name=boxed")
BOXED = (*BASE, "runtime=podman", f"runtime.image={IMAGE}")


def test_the_command_hands_on_the_release_and_nothing_else() -> None:
    release = render(compose([*BOXED, "nccl.algo=Ring", "secrets.env.HF_TOKEN='file:/x'"]))
    image = release.argv.index(IMAGE)
    given = [word.removeprefix("--env=") for word in release.argv[:image] if word.startswith("--env")]
    assert given == sorted([*release.env, "HF_TOKEN", "INVOCATION_ID"])
    plain = render(compose([*BASE, "engine.python=/usr/bin/python3", "nccl.algo=Ring"]))
    assert release.argv[image + 1 :] == plain.argv
    assert release.argv[image - 1] == "--entrypoint="
    assert {"--cgroups=split", "--pull=never", "--ipc=host", "--network=host"} <= set(release.argv[:image])
    assert "--volume=/mnt/models/tiny:/mnt/models/tiny:ro" in release.argv
    assert "--volume=/dev/null:/etc/nccl.conf:ro" in release.argv


def test_the_image_is_part_of_the_release() -> None:
    other = render(compose([*BOXED[:-1], f"runtime.image=a/b@sha256:{'1' * 64}"]))
    assert other.digest != render(compose(list(BOXED))).digest


def test_secret_flags_are_mounted() -> None:
    release = render(compose([*BOXED, "secrets.args.api_key='file:/x'"]))
    assert "--volume=/run/launch/boxed:/run/launch/boxed:ro" in release.argv


def test_the_unit_lets_podman_work_and_only_it() -> None:
    boxed, plain = render(compose(list(BOXED))), render(compose(list(BASE)))
    assert boxed.settings["User"] == "root"
    assert "\nDelegate=yes\n" in boxed.unit.text
    assert "NoNewPrivileges" not in boxed.unit.text
    assert "\nExecStartPre=-/usr/bin/podman rm --force --ignore launch-boxed\n" in boxed.unit.text
    assert "podman" not in plain.unit.text
    assert "Delegate" not in plain.unit.text
    assert "\nUMask=0077\n# No option that needs a seccomp" in plain.unit.text
    assert "\nProtectControlGroups=yes\n\n[Install]" in plain.unit.text


def test_a_host_is_asked_for_podman_and_the_image() -> None:
    boxed, plain = compose(list(BOXED)), compose(list(BASE))
    assert needs(boxed)["programs"]["engine.python"] == "/usr/bin/podman"
    assert (preflight(boxed)["image"], preflight(plain)["image"]) == (IMAGE, "")
    assert needs(plain)["programs"]["engine.python"] == "/opt/vllm/bin/python"


REFUSED: dict[str, tuple[list[str], str]] = {
    "another user": (["engine.user=llm"], "engine.user=llm: podman is started by root here"),
    "a folder of the host": (["engine.working_directory=/srv"], "engine.working_directory is a folder of the host"),
    "a child of the command": (["target=process"], "does not go with runtime=podman"),
    "a test of links": (["target.link_test=stopped"], "need the engine's interpreter on the host"),
    "collectives alone": (["bench=allreduce"], "need the engine's interpreter on the host"),
}


@pytest.mark.parametrize(("words", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        render(compose([*BOXED, *words]))
    assert reason in str(caught.value)


def test_no_image_is_told_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.image=NAME@sha256:DIGEST"):
        render(compose([*BASE, "runtime=podman"]))


def test_other_forms_take_the_engine_s_own_command() -> None:
    deployment = compose(list(BOXED))
    release = render(deployment)
    with pytest.raises(ConfigError, match="leave out runtime=podman"):
        export("compose", deployment, release, Programs())
    with pytest.raises(ConfigError, match="lives in a unit of systemd"):
        sbatch.script(deployment, release, bundle.task_program)


GROUPS = {
    "/launch.slice/launch-a.service": "/launch.slice/launch-a.service",
    "/launch.slice/launch-a.service/.control": "/launch.slice/launch-a.service",
    "/launch.slice/launch-a.service/libpod-payload-0/x.service": "/launch.slice/launch-a.service",
    "/machine.slice/h1/launch.slice/launch-a.b.service/runtime": "/machine.slice/h1/launch.slice/launch-a.b.service",
    "/user.slice/x.scope": "/user.slice/x.scope",
    "": "",
}


@pytest.mark.parametrize(("path", "unit"), GROUPS.items())
def test_the_group_of_a_unit(path: str, unit: str) -> None:
    assert unit_cgroup(path) == unit


def test_facts_of_an_image_are_no_settings() -> None:
    with bundle.informed():
        assert not watched("NCCL_VERSION")
        assert watched("NCCL_ALGO")
