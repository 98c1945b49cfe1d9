"""Inventories of Ansible: what its own program says of the same files, recorded with ansible-core 2.19.14."""

import json
import stat
from pathlib import Path

import pytest

from launcher.errors import ConfigError
from launcher.inventory import ini, tree
from launcher.inventory.known import Inventory, ranges, resolve
from launcher.inventory.load import load

CASES = Path(__file__).parent / "cases"


def resolved_by_ansible(path: Path) -> dict[str, dict[str, str]]:
    hosts = json.loads(path.read_text())["_meta"]["hostvars"]
    return {name: tree.variables(own, "") for name, own in hosts.items()}


@pytest.mark.parametrize("name", ["ini/hosts.ini", "yaml/hosts.yml", "beside/hosts"])
def test_hosts_and_variables_are_those_that_ansible_sees(name: str) -> None:
    file = CASES / name
    found = load(str(file))
    assert {host: dict(own) for host, own in found.hosts.items() if own} == resolved_by_ansible(
        file.parent / "ansible.json"
    )


@pytest.mark.parametrize("name", ["ini", "yaml", "beside"])
def test_groups_are_those_that_ansible_sees(name: str) -> None:
    file = next(path for path in (CASES / name).glob("hosts*"))
    said = json.loads((CASES / name / "ansible.json").read_text())
    listed = resolve(tree.listed(json.dumps(said), "ansible"), "ansible")
    found = load(str(file))
    groups = {group: set(members) for group, members in listed.groups.items() if group != "ungrouped"}
    assert {group: set(members) for group, members in found.groups.items()} == groups


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu[1:3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[08:10]", ["gpu08", "gpu09", "gpu10"]),
        ("gpu[1:9:4].x", ["gpu1.x", "gpu5.x", "gpu9.x"]),
        ("[a:b]-[1:2]", ["a-1", "a-2", "b-1", "b-2"]),
        ("plain", ["plain"]),
    ],
)
def test_ranges(text: str, expected: list[str]) -> None:
    assert ranges(text, "f:1") == expected


@pytest.mark.parametrize("text", ["gpu[3:1]", "gpu[1]", "gpu[1:", "gpu[a:9]", "gpu[1:4:0]", "gpu[]"])
def test_a_range_that_is_none_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f:1: .*gpu\["):
        ranges(text, "f:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gpu]\na b\n", "f:2: 'b' behind a host is no NAME=VALUE"),
        ("[gpu:vras]\n", r"f:1: \[gpu:vras\] is no section"),
        ("[gpu:vars]\nnothing\n", "f:2: 'nothing' is no NAME=VALUE"),
        ("gpu1 a='x\n", "f:1: a quote is not closed"),
    ],
)
def test_a_broken_ini_names_the_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ini.read(text, "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f.yml:1: no valid YAML"),
        ("all: 7", "group 'all' holds hosts, children and vars, not 7"),
        ("all: {host: {a: }}", "group 'all' holds host; known: hosts, children, vars"),
        ("- a", r"holds groups, not \[\"a\"\]"),
    ],
)
def test_a_broken_yaml_names_the_place(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(str(file))


def test_groups_that_contain_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("[a:children]\nb\n[b:children]\na\n")
    with pytest.raises(ConfigError, match="groups contain each other: a -> b -> a"):
        load(str(file))


def test_what_has_to_be_run_is_asked_of_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ansible-inventory"
    program.write_text(f"#!/bin/sh\n[ \"$1 $3\" = '-i --list' ] && cat {CASES}/yaml/ansible.json\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    cloud = tmp_path / "cloud.yml"
    cloud.write_text("plugin: cloud\n")
    script = tmp_path / "dynamic"
    script.write_text("#!/bin/sh\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for path in (cloud, script, tmp_path / "bin"):
        assert set(load(str(path)).hosts) == {"bastion", "gpu1", "gpu2", "gpu3", "gpu7"}


def test_without_ansible_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"not installed here; or write .* --export > hosts.json"):
        load(str(tmp_path))


def test_the_printed_json_is_an_inventory_too(tmp_path: Path) -> None:
    file = tmp_path / "hosts.json"
    file.write_text((CASES / "ini" / "ansible.json").read_text())
    assert dict(load(str(file)).hosts["gpu9"]) == dict(load(str(CASES / "ini" / "hosts.ini")).hosts["gpu9"])


@pytest.mark.parametrize(
    ("content", "message"), [(None, "there is no such file"), (b"\xff\xfe\x00", "no valid UTF-8 at byte 0")]
)
def test_a_file_that_is_none(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(str(file))


def test_what_is_encrypted_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("gpu1 a=1\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3031\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "gpu1.yml").write_text("b: 2\nc: !vault |\n  $ANSIBLE_VAULT;1.1\n")
    assert load(str(tmp_path / "hosts")) == Inventory(
        str(tmp_path / "hosts"), {"gpu1": {"a": "1", "b": "2", "c": ""}}, {"all": ("gpu1",)}
    )
