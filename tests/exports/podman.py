"""Hosts that run containers with podman, and an image with the stand-in engine in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fleet import FleetHost

IMAGE = "localhost/standin:1"
#: In the image: an interpreter for our program, and the stand-in for every other command.
PYTHON = "/opt/boxed/python"
#: podman's storage needs a file system that an overlay may lie on; a fleet host's disk is an overlay itself. nspawn
#: denies keyrings. A host without a GPU has no description of one: a variable stands in for the device.
PREPARE = r"""
set -e
mkdir -p /etc/cdi /var/lib/containers
mount -t tmpfs tmpfs /var/lib/containers
cat > /etc/cdi/nvidia.json <<'EOF'
{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
 "devices": [{"name": "all", "containerEdits": {"env": ["STANDIN_DEVICES=all"]}}]}
EOF
mkdir -p /etc/containers /opt/boxed
printf '[containers]\nkeyring = false\n' > /etc/containers/containers.conf
cat > PYTHON <<'EOF'
#!/bin/sh
case $1 in -I) exec /usr/bin/python3 "$@" ;; esac
exec /opt/standin/python "$@"
EOF
chmod +x PYTHON
cd /
tar --create bin lib lib64 usr/bin/env usr/bin/sh usr/bin/dash usr/bin/python3* usr/lib64 usr/lib/python3* \
    usr/lib/x86_64-linux-gnu/*.so* opt/standin opt/boxed etc/passwd |
    podman import --change ENV=NCCL_VERSION=2.21.5-1 --change ENV=CUDA_VERSION=12.8.1 - IMAGE
"""


def prepare(host: FleetHost) -> None:
    """Make a host able to run containers, with an image as podman imports it from a root folder."""
    host.run(PREPARE.replace("IMAGE", IMAGE).replace("PYTHON", PYTHON), timeout=300)


def change(host: FleetHost, name: str, instruction: str) -> None:
    """Make an image that differs from the first in one instruction."""
    host.run(
        f"id=$(podman create {IMAGE} x) && podman commit --change '{instruction}' $id {name} && podman rm $id",
        timeout=120,
    )
