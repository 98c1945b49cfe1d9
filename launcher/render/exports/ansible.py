"""An Ansible playbook that puts the release's own files on hosts: unit, environment file, manifest, guard and waiter.

Nothing of the playbook is a template of Ansible's but its own few conditions: files are copied as they are, so that no
``{{`` of a value is ever looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from launcher.render.exports.export import NO_PLACE, Export, head, raise_all, refuse_nodes
from launcher.render.exports.yaml_text import document
from launcher.render.release import ETC, File
from launcher.render.unit import secret_ids

if TYPE_CHECKING:
    from launcher.render.exports.export import Programs
    from launcher.render.release import Release
    from launcher.schema import Deployment

_KEPT = (
    "unit, environment file, manifest, guard and waiter are those of launch up",
    "so every start, also after a crash and at boot, is checked before and proven after, or fails and says why",
    "secrets reach the server as credentials of systemd; they come from a variable that you keep in Ansible Vault",
)
_LOST = (
    "the old server is not put back when the new one does not start: the play fails and the unit stays down",
    "no lease, no drain, no confirmation, no recovery at boot of a change that was cut short",
    "no generations: launch status, history, rollback and drift --fix know nothing of this server",
    "no check for drift by the host itself: launch-drift.timer needs the record that launch up leaves",
    NO_PLACE,
)
_TAKEN = ("launch.slice", "launch.target", "launch-gpu-prepare.service")


def build(deployment: Deployment, release: Release, programs: Programs) -> Export:
    """Return the playbook and what it copies that is not part of the release.

    Raises:
        ConfigError: a deployment that one play cannot carry.
    """
    raise_all(refuse_nodes(deployment, "a play"))
    name = f"{release.name}.ansible.yaml"
    shared = [
        file
        for file in programs.shared(deployment.target.python)
        if file.path.endswith("/agent.py") or file.path.rpartition("/")[2] in _TAKEN
    ]
    use = f"ansible-playbook --inventory INVENTORY {name}"
    lost = (*_LOST, *_of_secrets(deployment, release))
    play = document([_play(deployment, release, shared)])
    return Export(
        (
            File(name, head(release, use, _KEPT, lost) + play, 0o644),
            *(File(file.path.rpartition("/")[2], file.text, file.mode) for file in shared),
        ),
        _KEPT,
        lost,
        f"ansible-playbook --inventory INVENTORY {{folder}}/{name}",
    )


def _variable(release: Release) -> str:
    return "launch_secrets_" + re.sub(r"[^a-z0-9]", "_", release.name)


def _of_secrets(deployment: Deployment, release: Release) -> tuple[str, ...]:
    ids = secret_ids(deployment)
    if not ids:
        return ()
    return (f"secrets are yours to bring: the variable {_variable(release)}, a map with {', '.join(ids)}",)


def _play(deployment: Deployment, release: Release, shared: list[File]) -> dict[str, Any]:
    ids = secret_ids(deployment)
    folder = f"{ETC}/{release.name}"
    paths = [ETC, folder, *([f"{folder}/secrets"] if ids else []), "/usr/local/lib/launch"]
    return {
        "name": f"{release.name}, release {release.digest}",
        "hosts": "all",
        "become": True,
        "gather_facts": False,
        "tasks": [
            *_checks(deployment),
            _task(
                "Folders",
                "file",
                {"path": "{{ item }}", "state": "directory", "owner": "root", "group": "root", "mode": "0755"},
                loop=[path for path in paths if not path.endswith("/secrets")],
            ),
            *(_secret_tasks(release, ids) if ids else []),
            _copies("What all deployments share", shared, "shared"),
            _copies("The release", list(release.files), "changed"),
            *_start(deployment, release, with_secrets=bool(ids)),
        ],
    }


def _task(name: str, module: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
    return {"name": name, f"ansible.builtin.{module}": arguments, **more}


def _checks(deployment: Deployment) -> list[dict[str, Any]]:
    return [
        _task(
            "Version of systemd",
            "command",
            {"argv": ["systemctl", "--version"]},
            register="systemd",
            changed_when=False,
        ),
        _task(
            "systemd is 247 or newer",
            "assert",
            {
                "that": ["systemd.stdout.split()[1] | int >= 247"],
                "fail_msg": "systemd is older than 247, which hands no secrets and fewer checks to a server",
            },
        ),
        _task(
            "The server's user is there",
            "getent",
            {"database": "passwd", "key": deployment.engine.user},
        ),
    ]


def _secret_tasks(release: Release, ids: list[str]) -> list[dict[str, Any]]:
    folder = f"{ETC}/{release.name}/secrets"
    owner = {"owner": "root", "group": "root"}
    return [
        _task("Folder of secrets", "file", {"path": folder, "state": "directory", **owner, "mode": "0700"}),
        _task(
            "Secrets",
            "copy",
            {
                "dest": f"{folder}/{{{{ item }}}}",
                "content": f"{{{{ {_variable(release)}[item] }}}}",
                **owner,
                "mode": "0600",
            },
            loop=ids,
            no_log=True,
            register="secrets",
        ),
    ]


def _copies(name: str, files: list[File], register: str) -> dict[str, Any]:
    items = [
        {
            "src": file.path.rpartition("/")[2],
            "dest": file.path,
            "mode": f"{file.mode:04o}",
            # Whoever the manifest is for is known by the number of its group, which may have another name.
            "group": "root" if file.group == "root" else f"{{{{ ansible_facts.getent_passwd['{file.group}'][2] }}}}",
        }
        for file in files
    ]
    arguments = {
        "src": "{{ playbook_dir }}/{{ item.src }}",
        "dest": "{{ item.dest }}",
        "owner": "root",
        "group": "{{ item.group }}",
        "mode": "{{ item.mode }}",
    }
    return _task(name, "copy", arguments, loop=items, loop_control={"label": "{{ item.dest }}"}, register=register)


def _start(deployment: Deployment, release: Release, *, with_secrets: bool) -> list[dict[str, Any]]:
    limit = deployment.unit.start_timeout + deployment.unit.stop_timeout + 60
    changed = "changed is changed" + (" or secrets is changed" if with_secrets else "")
    journal = f"journalctl --unit {release.unit_name} _SYSTEMD_INVOCATION_ID=$(systemctl show --property InvocationID"
    journal += f" --value {release.unit_name}) --output cat --no-pager"
    return [
        _task("systemd reads its files again", "systemd_service", {"daemon_reload": True}),
        {
            "name": "Start, and wait for the proof",
            "block": [
                _task(
                    "The server, restarted if anything of it changed",
                    "systemd_service",
                    {
                        "name": release.unit_name,
                        "enabled": True,
                        "state": f"{{{{ 'restarted' if {changed} else 'started' }}}}",
                    },
                    **{"async": limit, "poll": 2},
                ),
            ],
            "rescue": [
                _task(
                    "Its last lines",
                    "command",
                    {
                        "argv": [
                            "journalctl",
                            "--unit",
                            release.unit_name,
                            "--lines",
                            "40",
                            "--output",
                            "cat",
                            "--no-pager",
                        ]
                    },
                    register="said",
                    changed_when=False,
                ),
                _task("The server did not start", "fail", {"msg": "{{ said.stdout_lines }}"}),
            ],
        },
        _task(
            "The proof of this start",
            "shell",
            {"cmd": f"{journal} | grep --fixed-strings 'proof: release {release.digest}'"},
            register="proof",
            changed_when=False,
        ),
        _task("Proven", "debug", {"msg": "{{ proof.stdout_lines[-1] }}"}),
    ]
