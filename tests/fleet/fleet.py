"""The fleet: boots its hosts together and takes everything away at the end."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet import access, base, disk, machine, network, slot
from tests.fleet.cgroup import Cgroup
from tests.fleet.host import FleetHost
from tests.fleet.shell import FleetError

if TYPE_CHECKING:
    from typing import Self

#: Where the presets of the tests have their weights: a model of a few bytes each.
MODELS = ("mnt/models/Kimi-K2.5", "mnt/models/Kimi-K2.5-eagle3", "mnt/models/tiny")
STANDIN = Path(__file__).resolve().parent.parent / "standin" / "standin.py"


@dataclass(frozen=True)
class Shape:
    """All that is needed to find a running fleet again; kept as `fleet.json` in its state folder."""

    number: int
    count: int
    suite: str
    prefix: str
    own_network: bool
    owner: int

    def addresses(self) -> dict[str, str]:
        """Return the address of every host by name."""
        return {f"h{i}": f"{self.prefix}.{network.FIRST_HOST + i - 1}" for i in range(1, self.count + 1)}


class Fleet:
    """A context manager around running hosts; leaving it removes them without a trace."""

    def __init__(self, shape: Shape, state: Path, held: slot.Slot | None) -> None:
        self.shape = shape
        self.state = state
        self.ssh_config = state / "ssh_config"
        self.known_hosts = state / "known_hosts"
        self.identity = state / "identity"
        self._slot = held
        self.hosts = [self._host(i, *named) for i, named in enumerate(shape.addresses().items(), start=1)]

    @classmethod
    def boot(cls, count: int, *, suite: str = "bookworm", own_network: bool = True, state: Path | None = None) -> Fleet:
        """Boot so many hosts of a Debian release; returns when all are up."""
        if not 1 <= count <= 200:
            raise FleetError(f"a fleet has 1 to 200 hosts, not {count}")
        machine.prepare()
        root = base.root_of(suite)
        machine.allow_inotify(count)
        held = slot.Slot.take()
        try:
            folder = _empty_folder(state or base.cache() / "run" / str(held.number))
            held.claim(folder)
            prefix = (network.free_prefix if own_network else network.loopback_prefix)(held.number)
            fleet = cls(Shape(held.number, count, suite, prefix, own_network, os.getpid()), folder, held)
            fleet._build(root)
            fleet._boot_all()
        except BaseException:
            held.release()
            raise
        return fleet

    @classmethod
    def find(cls, state: Path) -> Fleet:
        """Return the fleet that another process has up in a state folder; closing this one does nothing."""
        state = state.resolve()
        try:
            shape = Shape(**json.loads((state / "fleet.json").read_text()))
        except PermissionError as err:
            raise FleetError(f"{state} belongs to somebody else: be root") from err
        except (FileNotFoundError, NotADirectoryError) as err:
            raise FleetError(f"no fleet is up in {state}") from err
        if not slot.is_held(shape.number, state):
            raise FleetError(f"the fleet in {state} is gone: its process died; `down` removes the rest")
        return cls(shape, state, None)

    def host(self, name: str) -> FleetHost:
        """Return the host of that name."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise FleetError(f"no such host: {name}; there are {', '.join(host.name for host in self.hosts)}")

    def close(self) -> None:
        """Switch all hosts off and remove everything; may be called twice."""
        held, self._slot = self._slot, None
        if held:
            held.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _host(self, index: int, name: str, address: str) -> FleetHost:
        number = self.shape.number
        return FleetHost(
            name=name,
            address=address,
            root=self.state / name / "root",
            machine=f"lf{number}-{name}",
            ssh_config=self.ssh_config,
            cgroup=Cgroup(slot.group(number), name),
            cable=network.cable(number, index) if self.shape.own_network else None,
            options=base.options(self.shape.suite),
        )

    def _build(self, root: Path) -> None:
        """Make disks, keys and cables; nothing runs yet."""
        new = self.state / "fleet.json.new"
        new.write_text(json.dumps(vars(self.shape)))
        new.rename(self.state / "fleet.json")
        public_key = access.new_key(self.identity)
        if self.shape.own_network:
            network.create_bridge(self.shape.number, self.shape.prefix)
        keys = {}
        for host in self.hosts:
            disk.create(root, host.root.parent)
            self._furnish(host)
            access.let_in(host.root, public_key)
            keys[host.name] = access.give_host_key(host.root)
            if host.cable:
                host.cable.lay(host.address)
        access.write_config(self.state, self.shape.addresses(), keys)

    def _furnish(self, host: FleetHost) -> None:
        """Write what differs from host to host, and the stand-in for an engine."""
        etc = host.root / "etc"
        (etc / "hostname").write_text(f"{host.name}\n")
        (etc / "default/locale").touch()  # else every login leaves a warning in the journal
        names = "".join(f"{address} {name}\n" for name, address in self.shape.addresses().items())
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        if host.cable is None:
            (etc / "ssh/sshd_config.d/address.conf").write_text(f"ListenAddress {host.address}\n")
        opt = host.root / "opt/standin"
        opt.mkdir(parents=True)
        (opt / "standin.py").write_bytes(STANDIN.read_bytes())
        # Named as an interpreter by units; standin.py then takes this path out of its command line again.
        (opt / "python").write_text("#!/usr/bin/python3 /opt/standin/standin.py\n")
        (opt / "python").chmod(0o755)
        for model in MODELS:
            _write_model(host.root / model)

    def _boot_all(self) -> None:
        with ThreadPoolExecutor(max_workers=len(self.hosts)) as pool:
            boots = [pool.submit(host.boot) for host in self.hosts]
            try:
                for booted in boots:
                    booted.result()
            except BaseException:
                for host in self.hosts:  # so that the other boots end now
                    host.power_cut()
                raise


def _empty_folder(path: Path) -> Path:
    """Make the state folder; one with a crashed fleet's files is emptied, one with other files refused."""
    path = path.resolve()
    if set(str(path)) & set(",:\\"):
        raise FleetError(f"{path}: a state folder's path must be without comma, colon and backslash")
    if (path / "fleet.json").exists():
        number = json.loads((path / "fleet.json").read_text())["number"]
        if slot.is_held(number, path):
            raise FleetError(f"a fleet is up already in {path}: take it down first")
        disk.remove(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FleetError(f"{path} is not an empty folder: its files may be somebody's")
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def _write_model(folder: Path) -> None:
    """Write what an engine looks for before it loads: configuration, tokenizer, weights in one file."""
    header = b'{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
