from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from launcher.catalogue.engine_source import declared
from launcher.catalogue.python_source import Tree
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SGLANG = "sglang/srt/server_args.py"


def read(engine: str, files: Mapping[str, str]) -> dict[str, tuple[tuple[str, ...], str, tuple[str, ...], str]]:
    """Return what the reader finds in sources, by canonical name: other names, values, choices, note."""
    sources = {path: textwrap.dedent(text).encode() for path, text in files.items()}
    tree = Tree(lambda: sources, lambda path: sources[path])
    return {f.names[0]: (f.names[1:], f.takes, f.choices, f.deprecated) for f in declared(tree, engine)}


CALLS = """
    BACKENDS = ["a", *MORE]
    MORE = ["b"]

    class Gone(argparse.Action):
        def __init__(self, option_strings, dest, nargs=0, **kwargs): ...

    class ServerArgs:
        plain: int = 1

        @staticmethod
        def add_cli_args(parser):
            parser.add_argument("model", nargs="?")
            parser.add_argument("--tp-size", "-t", "--tensor-parallel-size", type=int)
            parser.add_argument("--backend", choices=["auto"] + BACKENDS)
            parser.add_argument("--parser", choices=list(Parsers.keys()))
            parser.add_argument("--metrics", action="store_true")
            parser.add_argument("--sizes", nargs="+")
            parser.add_argument("--level", nargs="?")
            if extra:
                parser.add_argument("--shown", action=argparse.BooleanOptionalAction)
            parser.add_argument("--ratio", action=Gone, help="Note: --ratio is deprecated now. Nothing else.")
            parser.add_argument("--old", action=Gone, nargs=None, new_flag="--new", help="Moved.")
"""
FIELDS = """
    class ServerArgs:
        host: A[str, "Where to listen."] = "127.0.0.1"
        model_path: A[str, Arg(help="Weights.", aliases=["--model"])]
        tp_size: Annotated[Optional[int], Arg(help="Ranks.", cli_name="--tensor-parallel-size")] = None
        off: A[bool, "Switch."] = False
        mode: A[Literal["x", "y"] | None, "Mode."] = None
        ids: A[Optional[List[int]], "Some."] = None
        pairs: A[list[str], Arg(help="As JSON.", type_parser=json.loads)] = None
        more: A[str, NS("parallel"), Arg(action=argparse.BooleanOptionalAction)] = ""
        paths: A[str, Arg(action=Own, action_kwargs={"nargs": "*"})] = ""
        hidden: A[bool, Arg(no_cli=True)] = False
        rank: A[int, Derived(doc="No input.")]
        plain: int = 1
    ServerArgs = defstruct("ServerArgs", ServerArgs)
"""


def test_add_argument() -> None:
    assert read("sglang", {SGLANG: CALLS}) == {
        "--tp-size": (("--tensor-parallel-size", "-t"), "one", (), ""),
        "--backend": ((), "one", ("auto", "a", "b"), ""),
        "--parser": ((), "one", (), ""),
        "--metrics": ((), "none", (), ""),
        "--sizes": ((), "many", (), ""),
        "--level": ((), "optional", (), ""),
        "--shown": (("--no-shown",), "none", (), ""),
        "--ratio": ((), "none", (), "Note: --ratio is deprecated now."),
        "--old": ((), "one", (), "use --new"),
    }


def test_annotated_fields() -> None:
    assert read("sglang", {SGLANG: FIELDS}) == {
        "--host": ((), "one", (), ""),
        "--model-path": (("--model",), "one", (), ""),
        "--tensor-parallel-size": ((), "one", (), ""),
        "--off": ((), "none", (), ""),
        "--mode": ((), "one", ("x", "y"), ""),
        "--ids": ((), "many", (), ""),
        "--pairs": ((), "one", (), ""),
        "--more": (("--no-more",), "none", (), ""),
        "--paths": ((), "many", (), ""),
    }


def test_fields_in_namespaces() -> None:
    spec = """
        from ..choices import FORMATS
        class Spec(msgspec.Struct):
            _NS_PATH = "spec"
            draft_format: A[str, Arg(help="(Deprecated, use --format)", choices=FORMATS)] = None
    """
    fields = "sglang/srt/arg_groups/fields/spec.py"
    found = read("sglang", {SGLANG: CALLS, fields: spec, "sglang/srt/arg_groups/choices.py": "FORMATS = ('p', 'q')"})
    assert found["--draft-format"] == ((), "one", ("p", "q"), "(Deprecated, use --format)")
    assert len(found) == 10


VLLM = {
    "vllm/entrypoints/cli/serve.py": "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n",
    "vllm/entrypoints/launchers/cli_args.py": """
        @config
        class Base:
            keys: list[str] | None = None
            tool: str | None = None

            @classmethod
            def _customize_cli_kwargs(cls, frontend_kwargs):
                frontend_kwargs["tool"]["flags"] = ["-t"]
                return frontend_kwargs

        @config
        class FrontendArgs(Base):
            port: int = 8000
            origins: list[str] = field(default_factory=list)

            @classmethod
            def _customize_cli_kwargs(cls, frontend_kwargs):
                frontend_kwargs = super()._customize_cli_kwargs(frontend_kwargs)
                del frontend_kwargs["origins"]["nargs"]
                return frontend_kwargs

        def make_arg_parser(parser):
            parser.add_argument("model_tag", nargs="?")
            parser.add_argument("--headless", action="store_true")
            return FrontendArgs.add_cli_args(parser)
    """,
    "vllm/config/__init__.py": "from vllm.config.parallel import ParallelConfig\n",
    "vllm/config/parallel.py": """
        if TYPE_CHECKING:
            from vllm.methods import Method
        else:
            Method = str
        Backend = Literal["ray", "mp", "none"]
        Level: TypeAlias = Literal["a", "b"]

        @config
        class Inner: ...

        @config
        class ParallelConfig:
            size: int = Field(default=1, ge=1)
            backend: Backend | None = None
            open_backend: str | Backend = "mp"
            eager: bool | None = None
            token: bool | str | None = None
            inner: Inner | None = None
            traces: list[Level] | None = None
            method: "Method | None" = None
            \"\"\"[DEPRECATED] Use nothing. Really.\"\"\"
    """,
    "vllm/engine/arg_utils.py": """
        from vllm.config import ParallelConfig

        class EngineArgs:
            @staticmethod
            def add_cli_args(parser):
                kw = get_kwargs(ParallelConfig)
                group = parser.add_argument_group(title="x")
                kw["backend"]["choices"].remove("none")
                group.add_argument("--tensor-parallel-size", "-tp", **kw["size"])
                group.add_argument("--backend", **kw["backend"])
                group.add_argument("--open-backend", **kw["open_backend"])
                group.add_argument("--eager", **{**kw["eager"], "default": None})
                group.add_argument("--hf-token", **kw["token"])
                group.add_argument("--inner", **kw["inner"])
                traces = kw["traces"]
                group.add_argument("--traces", **traces)
                group.add_argument("--method", **get_kwargs(ParallelConfig)["method"])

        class AsyncEngineArgs(EngineArgs):
            @staticmethod
            def add_cli_args(parser):
                parser = EngineArgs.add_cli_args(parser)
                parser.add_argument("--log", action=argparse.BooleanOptionalAction)
    """,
}


def test_configuration_classes() -> None:
    assert read("vllm", VLLM) == {
        "--headless": ((), "none", (), ""),
        "--keys": ((), "many", (), ""),
        "--tool": (("-t",), "one", (), ""),
        "--port": ((), "one", (), ""),
        "--origins": ((), "one", (), ""),
        "--tensor-parallel-size": (("-tp",), "one", (), ""),
        "--backend": ((), "one", ("ray", "mp"), ""),
        "--open-backend": ((), "one", (), ""),
        "--eager": (("--no-eager",), "none", (), ""),
        "--hf-token": ((), "optional", (), ""),
        "--inner": ((), "one", (), ""),
        "--traces": ((), "many", ("a", "b"), ""),
        "--method": ((), "one", (), "[DEPRECATED] Use nothing."),
        "--log": (("--no-log",), "none", (), ""),
    }


LOOP = "class ServerArgs:\n def add_cli_args(parser):\n  for n in names:\n   parser.add_argument(n)\n"


@pytest.mark.parametrize(
    ("engine", "files", "words"),
    [
        ("sglang", {}, "no flag of sglang found"),
        ("sglang", {SGLANG: LOOP}, "1 flags are declared in a way that is not understood"),
        ("sglang", {SGLANG: LOOP.replace("for n in names:", "if x:")}, ":4: cannot tell which flag"),
        ("vllm", {**VLLM, "vllm/config/__init__.py": ""}, "cannot tell what kw['size'] holds"),
        ("vllm", {**VLLM, "vllm/entrypoints/cli/serve.py": ""}, "no make_arg_parser"),
    ],
)
def test_a_form_that_is_not_known_is_said(engine: str, files: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(engine, files)
    assert words in str(caught.value)
