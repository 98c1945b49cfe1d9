"""The flags that an engine's source declares, read without importing it.

Three forms: calls of ``add_argument``; fields whose annotation carries the flag (``A[int, "help"]``,
``A[str, Arg(choices=...)]``, SGLang from 0.5.16 on); fields of configuration classes, whose type decides
(vLLM: ``add_argument("--x", **kwargs["x"])`` with ``kwargs = get_kwargs(Class)``).
"""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

from launcher.catalogue.engine_option import Declared, Option
from launcher.catalogue.python_source import Found, alternatives, last_name, literals, text_of
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from launcher.catalogue.python_source import Tree

_SGLANG = "sglang/srt/server_args.py"
_VLLM = "vllm/engine/arg_utils.py"


def declared(tree: Tree, engine: str) -> list[Declared]:
    """Return every flag of a release.

    Raises:
        ConfigError: the source does not have the form that this reader knows.
    """
    found = {flag.names[0]: flag for flag in (_sglang(tree) if engine == "sglang" else _vllm(tree))}
    if not found:
        raise ConfigError(f"no flag of {engine} found: its source has a form that this reader does not know")
    return list(found.values())  # a field that is written twice counts once (SGLang 0.5.16)


def _sglang(tree: Tree) -> Iterator[Declared]:
    records = [tree.find(_SGLANG, "ServerArgs")]
    for path in tree.matching("sglang/srt/arg_groups/fields/*.py"):
        records += [Found(path, n) for n in tree.bindings(path).values() if isinstance(n, ast.ClassDef)]
    for record in records:
        if record and isinstance(record.node, ast.ClassDef):
            for field in record.node.body:
                if isinstance(field, ast.AnnAssign) and (flag := _annotated(tree, record.path, field)):
                    yield flag
    yield from _calls(tree, _SGLANG, "ServerArgs", "add_cli_args")


def _annotated(tree: Tree, path: str, field: ast.AnnAssign) -> Declared | None:
    """Return the flag that a field's annotation carries, by the rules of SGLang's arg_groups/arg_utils.py."""
    match field:
        case ast.AnnAssign(
            target=ast.Name(id=name),
            annotation=ast.Subscript(value=ast.Name(id="A" | "Annotated"), slice=ast.Tuple(elts=[kind, *marks])),
        ):
            pass
        case _:
            return None
    mark = next((m for m in marks if not isinstance(m, ast.Call) or last_name(m.func) == "Arg"), None)
    option, given = Option(), {k.arg or "": k.value for k in mark.keywords} if isinstance(mark, ast.Call) else {}
    if mark is None or isinstance(given.get("no_cli"), ast.Constant):
        return None
    option.help = text_of(tree, path, mark)
    for key, node in given.items():
        option.set(tree, path, key, node)
    types = alternatives(tree, path, kind)
    types.pop("None", None)
    if not option.action and len(types) == 1:
        if "Literal" in types:
            option.choices = option.choices or literals(tree, *types["Literal"]) or ()
        elif "list" in types and not option.parsed:
            option.nargs = option.nargs or "+"
        elif "bool" in types:
            option.action = "store_true"
    first = text_of(tree, path, given.get("cli_name")) or _kebab(name)
    return option.declared((first, *(literals(tree, path, given.get("aliases")) or ())), path)


def _kebab(name: str) -> str:
    return "--" + name.replace("_", "-")


def _vllm(tree: Tree) -> Iterator[Declared]:
    parser = tree.find("vllm/entrypoints/cli/serve.py", "make_arg_parser")
    if not parser:
        raise ConfigError("no make_arg_parser: the source of vLLM has a form that this reader does not know")
    yield from _Calls(tree, parser).flags()
    classes = _ancestry(tree, tree.find(parser.path, "FrontendArgs"))
    options = {k: v for found in classes for k, v in _fields(tree, found).items()}
    for found in classes:
        _Calls(tree, found, {"frontend_kwargs": options}).flags("_customize_cli_kwargs")
    made = (option.declared([_kebab(name)], parser.path) for name, option in options.items())
    yield from (flag for flag in made if flag)
    for name in ("EngineArgs", "AsyncEngineArgs"):
        yield from _calls(tree, _VLLM, name, "add_cli_args")


def _calls(tree: Tree, path: str, name: str, method: str) -> Iterator[Declared]:
    found = tree.find(path, name)
    if found:
        yield from _Calls(tree, found).flags(method)


def _ancestry(tree: Tree, found: Found | None) -> list[Found]:
    """Return a class after those that it inherits from."""
    if not found or not isinstance(found.node, ast.ClassDef):
        return []
    bases = [tree.find(found.path, last_name(base)) for base in found.node.bases]
    return [*(c for base in bases for c in _ancestry(tree, base)), found]


def _fields(tree: Tree, found: Found) -> dict[str, Option]:
    """Return what the fields of a configuration class become, by the rules of vLLM's engine/arg_utils.py."""
    options: dict[str, Option] = {}
    body = found.node.body if isinstance(found.node, ast.ClassDef) else []
    for field, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            option = options[field.target.id] = _typed(tree, found.path, field.annotation)
            option.help = text_of(tree, found.path, after.value) if isinstance(after, ast.Expr) else ""
    return options


def _typed(tree: Tree, path: str, annotation: ast.expr) -> Option:
    types = alternatives(tree, path, annotation)
    if "dataclass" in types:
        return Option()
    if types.keys() == {"bool", "str", "None"}:
        return Option(nargs="?")
    if "bool" in types:
        return Option(action="BooleanOptionalAction")
    if "Literal" in types:
        return Option(choices=() if "str" in types else literals(tree, *types["Literal"]) or ())
    for kind in ("tuple", "list", "set"):
        if kind in types:
            where, node = types[kind]
            items = alternatives(tree, where, node.slice) if isinstance(node, ast.Subscript) else {}
            return Option(nargs="+", choices=literals(tree, *items["Literal"]) or () if "Literal" in items else ())
    return Option()


_Options = dict[str, "dict[str, Option] | Option"]


class _Calls:
    """The ``add_argument`` calls of one function, with the dictionaries that they unpack."""

    def __init__(self, tree: Tree, found: Found, options: _Options | None = None) -> None:
        self.tree, self.path, self.node = tree, found.path, found.node
        self.options: _Options = {} if options is None else options

    def flags(self, method: str = "") -> list[Declared]:
        """Return the flags of the function, or of one method of the class, in order."""
        body: list[ast.stmt] = getattr(self.node, "body", [])
        if method:
            body = next((n.body for n in body if isinstance(n, ast.FunctionDef) and n.name == method), [])
        calls = list(self._calls(body))
        there = sum(_adds(node) for statement in body for node in ast.walk(statement))
        if there != len(calls):
            raise ConfigError(f"{self.path}: {there - len(calls)} flags are declared in a way that is not understood")
        return [flag for call in calls if (flag := self._flag(*call))]

    def _calls(self, body: Iterable[ast.stmt]) -> Iterator[tuple[ast.Call, Option]]:
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Call() as call) if _adds(call):
                    yield call, self._merged(call)
                case ast.If():
                    yield from self._calls([*statement.body, *statement.orelse])
                case _:
                    self._change(statement)

    def _change(self, statement: ast.stmt) -> None:
        """Follow a statement that makes or changes a dictionary of arguments."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if (made := self._value(value)) is not None:
                    self.options[name] = made
            case ast.Assign(targets=[ast.Subscript(value=holder, slice=key)], value=value):
                if isinstance(option := self._value(holder), Option):
                    option.set(self.tree, self.path, self._text(key), value)
            case ast.Delete(targets=[ast.Subscript(value=holder, slice=key)]):
                if isinstance(option := self._value(holder), Option):
                    option.drop(self._text(key))
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Subscript(value=holder), attr="remove"), args=[value])
            ):
                if isinstance(option := self._value(holder), Option):
                    option.choices = tuple(c for c in option.choices if c != self._text(value))

    def _text(self, node: ast.expr | None) -> str:
        return text_of(self.tree, self.path, node)

    def _value(self, node: ast.expr) -> dict[str, Option] | Option | None:
        match node:
            case ast.Name(id=name):
                return self.options.get(name)
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                classes = _ancestry(self.tree, self.tree.find(self.path, name))
                return {k: v for found in classes for k, v in _fields(self.tree, found).items()}
            case ast.Subscript(value=holder, slice=ast.Constant(value=str(key))):
                made = self._value(holder)
                return made.get(key) if isinstance(made, dict) else None
            case ast.Dict(keys=keys, values=values):
                option = Option()
                for entry, value in zip(keys, values, strict=True):
                    option = self._with(option, self._text(entry) if entry else None, value)
                return option
        return None

    def _with(self, option: Option, key: str | None, value: ast.expr) -> Option:
        if key is None:
            made = self._value(value)
            if not isinstance(made, Option):
                raise ConfigError(f"{self.path}:{value.lineno}: cannot tell what {ast.unparse(value)} holds")
            return dataclasses.replace(made)
        option.set(self.tree, self.path, key, value)
        return option

    def _merged(self, call: ast.Call) -> Option:
        option = Option()
        for keyword in sorted(call.keywords, key=lambda k: k.arg is not None):
            option = self._with(option, keyword.arg, keyword.value)
        return option

    def _flag(self, call: ast.Call, option: Option) -> Declared | None:
        names = [self._text(a) for a in call.args]
        if not all(names):
            raise ConfigError(f"{self.path}:{call.lineno}: cannot tell which flag this declares")
        return option.declared(names, self.path)


def _adds(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "add_argument"
