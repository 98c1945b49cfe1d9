"""What runs on hosts, whoever started it, as found servers: one round trip a host, nothing is changed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.adopt.found import Found, Remark, Server
from launcher.adopt.secret import masked
from launcher.errors import HostError
from launcher.fleet.rollout import parallel, transports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.host.transport import Transport
    from launcher.schema import Target

#: What may be a script that starts an engine: its own, or a wrapper around an interpreter.
_SCRIPT = re.compile(r"(.*/)?(vllm|sglang|python[0-9.]*)")


def look(hosts: Sequence[str], target: Target) -> Found:
    """Look for running servers of SGLang and vLLM on hosts.

    Args:
        hosts: as ssh names them; of a target ``local`` they are not asked for.
        target: how they are reached.

    Raises:
        UnreachableError: a host cannot be reached.
        HostError: a host was reached and cannot be looked at.
        ConfigError: no host is named, or one twice.
    """
    kind = target.kind if target.kind == "local" else "ssh"
    ways = transports(replace(target, kind=kind, hosts=tuple(hosts)))
    seen = parallel(_ask, ways, target.parallel)
    pairs = list(zip((way.host for way in ways), seen, strict=True))
    servers = tuple(_server(host, entry, told["gpus"]) for host, told in pairs for entry in told["servers"])
    remarks = [Remark(host, masked(piece), why) for host, told in pairs for piece, why in told["remarks"]]
    for host, told in pairs:
        if not told["servers"]:
            remarks.append(Remark(host, "", "no process here is a server of SGLang or vLLM that could be adopted"))
    return Found(servers, tuple(remarks))


def _ask(way: Transport) -> Mapping[str, Any]:
    answer = way.call({"verb": "adopt"}, lambda _: None)
    if answer["problems"]:
        raise HostError(way.host, "; ".join(answer["problems"]))
    return answer


def _server(host: str, told: Mapping[str, Any], gpus: Sequence[str]) -> Server:
    where, words = f"{host}, process {told['pid']}", told["argv"]
    if len(words) > 1 and re.match(r"(.*/)?python", words[0]) and _SCRIPT.fullmatch(words[1]):
        words = words[1:]  # the kernel puts the interpreter before a script
    return Server(
        where=where,
        argv=tuple(words),
        env=dict(told["env"]),
        whole_env=True,
        hosts=(host,),
        user=told["user"],
        working_directory=told["working_directory"],
        log_file=told["log_file"],
        python=told["python"],
        unit=told["unit"],
        engine_version=told["engine_version"],
        nccl_version=told["nccl_version"],
        gpus=tuple(gpus),
        argv_digest=told["argv_digest"],
        name=told["unit"].removesuffix(".service") or told["container"].rpartition(" ")[2],
        remarks=tuple(Remark(where, masked(piece), why) for piece, why in told["remarks"]),
    )
