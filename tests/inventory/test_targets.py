"""From names, groups and patterns to hosts and the way there."""

import dataclasses
from pathlib import Path

import pytest

from launcher.errors import ConfigError
from launcher.host.ssh_route import route
from launcher.inventory.known import Inventory
from launcher.inventory.select import select
from launcher.inventory.targets import resolved, wants
from launcher.schema import Place, Target

KNOWN = Inventory(
    "hosts.ini",
    {"gpu1": {"rack": "a"}, "gpu2": {"rack": "a"}, "gpu3": {"rack": "b"}, "cpu1": {}},
    {"all": ("gpu1", "gpu2", "gpu3", "cpu1"), "gpu": ("gpu1", "gpu2", "gpu3"), "fast": ("gpu3", "gpu1")},
)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["cpu1", "gpu1"], ("cpu1", "gpu1")),
        (["gpu"], ("gpu1", "gpu2", "gpu3")),
        (["all", "!gpu"], ("cpu1",)),
        (["!cpu1"], ("gpu1", "gpu2", "gpu3")),
        (["gpu", "&fast"], ("gpu1", "gpu3")),
        (["gpu?", "!gpu2"], ("gpu1", "gpu3")),
        (["fa*"], ("gpu3", "gpu1")),
        (["~gpu[12]$"], ("gpu1", "gpu2")),
        (["rack=a"], ("gpu1", "gpu2")),
        (["rack=*", "!rack=a"], ("gpu3",)),
        (["gpu1", "gpu"], ("gpu1", "gpu2", "gpu3")),
    ],
)
def test_patterns(patterns: list[str], expected: tuple[str, ...]) -> None:
    assert select(patterns, KNOWN, "target.hosts") == expected


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["gqu1"], "has no host or group 'gqu1'; did you mean 'gpu1'"),
        (["tpu*"], r"tpu\* leaves no host of hosts.ini; hosts: gpu1, gpu2, gpu3, cpu1; groups: gpu, fast"),
        (["gpu", "!gpu"], "leaves no host"),
        (["row=1"], "no host of hosts.ini has a variable 'row'"),
        (["~("], "is no regular expression"),
        (["!gpu9"], "has no host or group 'gpu9'"),
    ],
)
def test_an_empty_choice_is_an_error(patterns: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        select(patterns, KNOWN, "target.hosts")


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    file = tmp_path / "hosts.ini"
    file.write_text(
        "[gpu]\ngpu1 ansible_host=10.0.0.1 ansible_user=ops ansible_port=2222 ansible_ssh_private_key_file=~/k\ngpu2\n"
        "gpu3 ansible_ssh_common_args='-J bastion'\n[other]\nlocal ansible_connection=local\n"
        'templated ansible_host="{{ ip }}"\n'
    )
    return str(file)


def test_an_inventory_gives_hosts_and_the_way_there(inventory: str) -> None:
    target, notes = resolved(Target("ssh", hosts=("gpu",), inventory=inventory))
    assert target.hosts == ("gpu1", "gpu2", "gpu3")
    assert target.places["gpu1"] == Place("10.0.0.1", "ops", 2222, "~/k")
    assert "gpu2" not in target.places
    assert len(notes) == 1
    assert "gpu3: ansible_ssh_common_args of the inventory is not read" in notes[0]


def test_what_is_typed_wins_over_the_inventory(inventory: str) -> None:
    typed = {"gpu1": Place("10.9.9.9")}
    assert resolved(Target("ssh", hosts=("gpu1",), inventory=inventory, places=typed))[0].places == typed


def test_the_way_goes_to_the_address_of_the_inventory(inventory: str, tmp_path: Path) -> None:
    empty = tmp_path / "config"
    empty.write_text("")
    key = tmp_path / "k"
    Path(inventory).write_text(Path(inventory).read_text().replace("~/k", str(key)))
    target, _ = resolved(Target("ssh", hosts=("gpu1",), inventory=inventory, user="root", ssh_config=str(empty)))
    with pytest.raises(ConfigError, match=r"gpu1: identity file of the inventory=.*/k: there is no such file"):
        route("gpu1", target)
    key.write_text("")
    (hop,) = route("gpu1", target)
    assert (hop.hostname, hop.user, hop.port) == ("10.0.0.1", "ops", 2222)
    assert hop.identity_files[0].endswith("/k")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("gpu2", ("gpu2",)),
        ("gpu*,!gpu1", ("gpu2", "gpu3")),
        ("other,gpu1", ("gpu1",)),
        (" gpu1 , gpu3 ", ("gpu1", "gpu3")),
    ],
)
def test_a_limit_chooses_among_the_hosts(limit: str, expected: tuple[str, ...], inventory: str) -> None:
    assert resolved(Target("ssh", hosts=("gpu",), inventory=inventory, limit=limit))[0].hosts == expected


def test_a_limit_alone_chooses_from_the_whole_inventory(inventory: str) -> None:
    assert resolved(Target("ssh", inventory=inventory, limit="gpu2"))[0].hosts == ("gpu2",)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target("ssh", hosts=("local",)), "local: ansible_connection=local in the inventory: .* SSH alone"),
        (Target("ssh", hosts=("templated",)), "ansible_host of the inventory is a template"),
        (Target("ssh"), r"target.hosts is empty: .* 'target.hosts=\[all\]'"),
        (Target("ssh", hosts=("gpu1",), limit="gpu2"), "no host is left: --limit gpu2 has none of target.hosts"),
        (Target("local", limit="gpu2"), "--limit chooses among the hosts of target=ssh, and here is target=local"),
    ],
)
def test_targets_that_are_refused(target: Target, message: str, inventory: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(dataclasses.replace(target, inventory=inventory))


def test_patterns_choose_among_the_hosts_of_the_ssh_configuration(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host gpu3 gpu*\n")
    config = tmp_path / "config"
    config.write_text(f'Host gpu1 "gpu2" !bad\n  User ops\nHOST=cpu1\nInclude {tmp_path}/more\nHost *\n  Port 22\n')
    target = Target("ssh", hosts=("gpu?", "by-hand"), ssh_config=str(config))
    assert resolved(target)[0].hosts == ("by-hand", "gpu1", "gpu2", "gpu3")
    with pytest.raises(ConfigError, match=r"tpu\* leaves no host of .*config"):
        resolved(Target("ssh", hosts=("tpu*",), ssh_config=str(config)))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("ssh", hosts=("gpu1", "ops@gpu2:22", "fd00::1")), False),
        (Target("ssh", hosts=("gpu*",)), True),
        (Target("process", inventory="hosts.ini"), False),
        (Target("ssh", inventory="hosts.ini"), True),
        (Target("process", limit="a"), True),
    ],
)
def test_plain_hosts_need_nothing(target: Target, *, expected: bool) -> None:
    assert wants(target) is expected
