"""The environment that a measurement runs under: what the unit carries, and what the engine's workers have besides.

Both engines write a few variables before they start their workers; a measurement without them would be one of another
server. Only what an engine adds unconditionally, or by a flag that is set, counts here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.render.environment import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

#: SGLang 0.5.6 to 0.5.23, _set_envs_and_config (engine_additions.csv): connections are forced, the others when unset.
_SGLANG_FORCED = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
_SGLANG_DEFAULTS = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
#: What says which algorithm NCCL takes for which size; once for each size, at the capture.
_SUBSYSTEMS = "INIT,ENV,TUNING"


def carried(deployment: Deployment) -> dict[str, str]:
    """Return the variables that a rank gets, beside those that every process of a unit or a shell has.

    Without secrets and without the two that name a release: equal ones are measured once.
    """
    env = environment(deployment)
    if env.get("NCCL_DEBUG_SUBSYS") == "INIT,ENV":
        env["NCCL_DEBUG_SUBSYS"] = _SUBSYSTEMS
    return {**env, **added(deployment, env)}


def added(deployment: Deployment, env: Mapping[str, str]) -> dict[str, str]:
    """Return what the engine writes into the environment of its workers, as far as it matters to NCCL."""
    if deployment.engine.name != "sglang":
        return {}
    args = deployment.engine.args
    defaults = {name: value for name, value in _SGLANG_DEFAULTS.items() if name not in env}
    if args.get("enable_symm_mem"):
        defaults = dict.fromkeys(_SGLANG_DEFAULTS, "1")
    elif args.get("enable_nccl_nvls"):
        defaults["NCCL_NVLS_ENABLE"] = "1"
    return {**defaults, **_SGLANG_FORCED}
