"""A small commented folder to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from launcher.compose import Layers

_DEPLOYMENT = """\
# @package _global_
# One server that lasts: launch plan {name}, launch up {name}, launch status {name}
defaults:
  # The machine. Options: {hw} (or a file of your own in conf/hw/).
  - /hw: rtx6000x8
  # Speculative decoding. Options: {spec}.
  - /spec: "off"
  # Choices that have a default stand here with "override":
  # - override /model: kimi_k2_5_int4
  # - override /engine: sglang
  # - override /nccl: pcie_ll_ring
  - override /target: ssh
  - _self_

# Names the unit on the host: launch-{name}.service
name: {name}

target:
  # Log in by hand once before: host keys are strict.
  hosts: [CHANGE-ME]

# The model's folder on the host, the engine's interpreter and the system user that it runs as.
# model:
#   path: /mnt/models/Kimi-K2.5
# engine:
#   python: /opt/sglang/bin/python
#   user: llm
#   port: 8000
#   args:
#     enable_metrics: true      # becomes --enable-metrics

# Values of NCCL variables, by their names without NCCL_ in lower case; launch explain nccl.algo {name}
# nccl:
#   max_nchannels: 16

# Any other variable, exactly as written.
env: {{}}
"""

#: Words that mean something else where the name of a deployment stands.
_TAKEN = ("all", "on", "off", "yes", "no", "true", "false", "null", "none", "nan", "inf")


def check_name(what: str, name: str) -> None:
    """Refuse what cannot name a deployment file.

    Raises:
        ConfigError: with what was asked for.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_.]{0,63}", name) or name in _TAKEN:
        raise ConfigError(f"{what}: a name is a word of a-z, 0-9, '_' and '.', a letter first")


def write_folder(name: str, layers: Layers) -> list[Path]:
    """Write ``conf/deployment/NAME.yaml`` below the current folder.

    Raises:
        ConfigError: the name cannot name a unit, or the file is there already.
        LaunchError: it cannot be written.
    """
    check_name(f"init {name!r}", name)
    path = Path("conf") / "deployment" / f"{name}.yaml"
    text = _DEPLOYMENT.format(name=name, hw=", ".join(layers.options("hw")), spec=", ".join(layers.options("spec")))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already; nothing was written") from error
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}") from error
    return [path]
