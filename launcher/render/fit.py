"""Whether tensor parallelism fits the GPUs and the model; what is not said is not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.schema import Deployment


def problems(deployment: Deployment) -> list[str]:
    """Return why the engine could not start with this degree of tensor parallelism, one line each.

    Evidence: vLLM refuses a degree above the GPUs it sees ("World size (2) is larger than the number of available
    GPUs") and heads that it does not divide ("Total number of attention heads (N) must be divisible by tensor
    parallel size"); SGLang dies with "invalid device ordinal" (sgl-project/sglang#3470) and a bare assertion
    (sgl-project/sglang#3436). Key-value heads fewer than the degree are copied, if they divide it (vLLM).
    """
    degree, hw, model = deployment.engine.tensor_parallel, deployment.hw, deployment.model
    label = f"engine.tensor_parallel={degree}"
    found: list[str] = []
    if degree < 1:
        found.append(f"{label} must be 1 or more")
        return found
    gpus = len(deployment.engine.gpus)
    if gpus and degree > gpus:
        found.append(f"{label} is more than the {gpus} GPUs of engine.gpus")
    elif hw.gpu_count and degree > hw.gpu_count * _nodes(deployment):
        found.append(f"{label} is more than the {hw.gpu_count} GPUs of hw={hw.name}")
    beyond = [g for g in deployment.engine.gpus if not g.isdigit() or (hw.gpu_count and int(g) >= hw.gpu_count)]
    if beyond:
        last = f"0 to {hw.gpu_count - 1}" if hw.gpu_count else "numbers from 0"
        found.append(f"engine.gpus: {', '.join(beyond)}: the GPUs of a host are {last}")
    if len(set(deployment.engine.gpus)) < gpus:
        found.append("engine.gpus names a GPU twice")
    if model.max_tensor_parallel and degree > model.max_tensor_parallel:
        found.append(f"{label}: {model.name} goes up to {model.max_tensor_parallel}")
    if model.attention_heads and model.attention_heads % degree:
        found.append(f"{label} does not divide the {model.attention_heads} attention heads of {model.name}")
    if model.kv_heads and model.kv_heads % degree and degree % model.kv_heads:
        found.append(f"{label} and the {model.kv_heads} key-value heads of {model.name} do not divide one another")
    return found


def _nodes(deployment: Deployment) -> int:
    """Return over how many hosts the engine is told to spread itself (``--nnodes`` of both engines)."""
    value = str(deployment.engine.args.get("nnodes") or "1")
    return int(value) if value.isdigit() else 1
