"""The engines' command lines, as pure builders.

Flags: SGLang 0.5.6 to 0.5.23 (`sglang.launch_server`), vLLM 0.25 to 0.33 (`vllm serve`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from launcher.catalogue import engines
from launcher.errors import RenderError
from launcher.render import encode

if TYPE_CHECKING:
    from launcher.schema import ArgValue, Deployment


def argv(deployment: Deployment) -> tuple[str, ...]:
    """Return the argument list of the server.

    Raises:
        RenderError: the engine cannot do what the deployment asks for, or a flag is set in two places.
    """
    encode.plain_path("engine.python", deployment.engine.python)
    build = {"sglang": _sglang, "vllm": _vllm}[deployment.engine.name]
    speculation = {"sglang": _sglang_speculation, "vllm": _vllm_speculation}[deployment.engine.name](deployment)
    own = build(deployment)
    secret = ["--config", secrets_file(deployment.name)] if deployment.secrets.args else []
    problems = _set_twice(deployment, [*own, *speculation, *secret])
    if problems:
        raise RenderError(*problems)
    return (deployment.engine.python, *own, *_extra(deployment), *speculation, *secret)


#: Other names of flags that keys of the deployment set (SGLang 0.5.6 to 0.5.23, vLLM 0.25 to 0.33).
_ALIASES = {
    "--tensor-parallel-size": "--tp-size",
    "--tp": "--tp-size",
    "--model": "--model-path",
    "-tp": "--tp-size",
}


def _set_twice(deployment: Deployment, own: list[str]) -> list[str]:
    """Return the flags of ``engine.args`` and ``secrets.args`` that something else sets too."""
    taken = {_same(word): "the deployment's own keys; set it there" for word in own if word.startswith("--")}
    problems: list[str] = []
    for group, args in (("engine.args", deployment.engine.args), ("secrets.args", deployment.secrets.args)):
        for key, value in args.items():
            if value is None or value is False:
                continue
            flag = _flag(key)
            if _same(flag) in taken:
                problems.append(f"{group}.{key}: {flag} is already set by {taken[_same(flag)]}")
            elif group == "engine.args" and _same(flag) in _SECRET_FLAGS:
                problems.append(f"{group}.{key} is a secret: set secrets.args.{key}=file:PATH instead")
            taken[_same(flag)] = f"{group}.{key}; set it once"
    return problems


_SECRET_FLAGS = ("--api-key", "--admin-api-key", "--hf-token")


def _same(flag: str) -> str:
    return _ALIASES.get(flag, flag)


def secrets_file(name: str) -> str:
    """Return the file from which the engine reads its secret flags; the guard writes it at each start.

    Both engines merge ``--config FILE.yaml`` into their arguments (SGLang 0.5.6 to 0.5.23,
    server_args_config_parser.py; vLLM 0.32, argparse_utils.py); an older one refuses the flag by its name.
    """
    return f"/run/launch/{name}/secrets.yaml"


def _sglang(d: Deployment) -> list[str]:
    return [
        *("-m", "sglang.launch_server"),
        *("--model-path", d.model.path),
        *(["--trust-remote-code"] if d.model.trust_remote_code else []),
        *(["--served-model-name", d.model.served_name] if d.model.served_name else []),
        *("--tp-size", str(d.engine.tensor_parallel)),
        *(["--mem-fraction-static", _number(d.engine.memory_fraction)] if d.engine.memory_fraction else []),
        *("--host", d.engine.host, "--port", str(d.engine.port)),
    ]


def _vllm(d: Deployment) -> list[str]:
    return [
        *("-m", "vllm.entrypoints.cli.main", "serve", d.model.path),
        *(["--trust-remote-code"] if d.model.trust_remote_code else []),
        *(["--served-model-name", d.model.served_name] if d.model.served_name else []),
        *("--tensor-parallel-size", str(d.engine.tensor_parallel)),
        *(["--gpu-memory-utilization", _number(d.engine.memory_fraction)] if d.engine.memory_fraction else []),
        *("--host", d.engine.host, "--port", str(d.engine.port)),
    ]


def _sglang_speculation(d: Deployment) -> list[str]:
    spec = d.spec
    if spec.method == "off":
        return []
    if spec.method == "ngram":
        return [
            "--speculative-algorithm",
            "NGRAM",
            "--speculative-num-draft-tokens",
            str(_needed(d, "draft_tokens")),
        ]
    _check_draft(d)
    steps, topk = _needed(d, "steps"), _needed(d, "topk")
    draft_tokens = spec.draft_tokens or steps + 1
    if topk == 1 and draft_tokens != steps + 1:
        # SGLang changes it silently to steps + 1 (0.5.6 to 0.5.23, arg_groups/speculative_hook.py).
        raise RenderError(
            f"spec.draft_tokens={draft_tokens}: with spec.topk=1 SGLang verifies spec.steps + 1 = {steps + 1} tokens;"
            f" set spec.draft_tokens={steps + 1}"
        )
    return [
        # Multi-token prediction is EAGLE that drafts with the model's own layers; NEXTN is another word for it.
        *("--speculative-algorithm", {"eagle3": "EAGLE3", "mtp": "EAGLE"}[spec.method]),
        *(["--speculative-draft-model-path", spec.draft_model_path] if spec.draft_model_path else []),
        *("--speculative-num-steps", str(steps), "--speculative-eagle-topk", str(topk)),
        *("--speculative-num-draft-tokens", str(draft_tokens)),
    ]


def _vllm_speculation(d: Deployment) -> list[str]:
    spec = d.spec
    if spec.method == "off":
        return []
    if spec.method == "ngram":
        settings: dict[str, str | int] = {
            "method": "ngram",
            "num_speculative_tokens": _needed(d, "draft_tokens"),
            **({"prompt_lookup_max": spec.ngram_max} if spec.ngram_max else {}),
        }
    else:
        _check_draft(d)
        if spec.topk > 1:
            raise RenderError(f"spec.topk={spec.topk}: vLLM drafts one chain only; set spec.topk=1 or engine=sglang")
        settings = {
            "method": spec.method,
            **({"model": spec.draft_model_path} if spec.draft_model_path else {}),
            "num_speculative_tokens": _needed(d, "steps"),
        }
    return ["--speculative-config", json.dumps(settings, separators=(",", ":"))]


def _check_draft(d: Deployment) -> None:
    """Refuse speculation that has nothing to draft with: the engines notice it late, after loading the model.

    SGLang then takes the target for its own draft and crashes (sgl-project/sglang#36528).
    """
    if d.spec.draft_model_path:
        return
    if d.spec.method == "eagle3":
        raise RenderError("spec.draft_model_path is missing: EAGLE-3 needs a draft model")
    if d.spec.method == "mtp" and d.model.mtp == "absent":
        raise RenderError(
            f"spec.method=mtp: the model {d.model.name!r} has no layers for multi-token prediction (model.mtp=absent);"
            " choose another spec"
        )


def _needed(d: Deployment, name: str) -> int:
    value = int(getattr(d.spec, name))
    if value < 1:
        raise RenderError(f"spec.{name}={value}: spec.method={d.spec.method} needs a whole number from 1 up")
    return value


def _extra(d: Deployment) -> list[str]:
    words: list[str] = []
    for key, value in d.engine.args.items():
        negative = f"--no-{_flag(key)[2:]}"
        if value is False and negative in engines.names(d.engine.name):
            words.append(negative)
        if value is None or value is False:
            continue
        words.append(_flag(key))
        if value is not True:
            words += [_text(v) for v in (value if isinstance(value, tuple) else (value,))]
    return words


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _text(value: ArgValue) -> str:
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return repr(value) if value != int(value) else str(int(value)) if abs(value) < 1e15 else repr(value)
