"""Shell texts: which servers a script starts, without running any of it.

The tree comes from tree-sitter's grammar of bash. It is walked in the order in which a shell would run it. Where the
way depends on what only the host knows, every way is read, and each server in one of them is told the condition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import shell_builtins, shell_loops, shell_pipes, shell_variables, shell_ways, unread
from launcher.adopt.script import Script
from launcher.adopt.shell_state import State, inherited
from launcher.adopt.source import NOTHING, Source, Word, quote
from launcher.adopt.start import Gathered, Start, follow
from launcher.adopt.wrappers import step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node

    from launcher.adopt.found import Remark
_IGNORED = ("comment", "\n", ";", ";;", "&", "heredoc_end", "heredoc_start")
_COMMANDS = ("command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments")
_DEEPEST_CALL = 20


def read(
    source: Source,
    into: Gathered,
    state: State | None = None,
    outer: Start | None = None,
    doubts: Sequence[Remark] = (),
) -> State:
    """Read a text as a shell script; returns what the shell knows at its end.

    Args:
        source: the text.
        into: takes servers and remarks.
        state: what the shell knows at its start.
        outer: the command that runs this text: host, user, container and so on.
        doubts: what every server of it is told.
    """
    script = Script(source, state or State(), into.files)
    script.state.doubts += doubts
    outer = outer or Start(source, source.where(0), "", ())
    walk, before = Walk(script, into, outer), (len(into.servers), len(into.remarks))
    walk.block(script.root.children)
    if script.root.type == "ERROR" and before == (len(into.servers), len(into.remarks)):
        unread.tell(walk, script.root)
    return script.state


def nested(word: Word, start: Start, into: Gathered) -> None:
    """Read the text that a command hands to another shell (``bash -c``, ``ssh HOST``); its words are the arguments."""
    if into.files.depth >= _DEEPEST_CALL:
        into.remarks.append(start.remark("shells within shells, deeper than launch reads"))
        return
    into.turn(start.source.name)
    into.files.depth += 1
    start = replace(start, remarks=(*start.remarks, *word.doubts))
    state = inherited(start.env, start.folder, start.python, given(start.words[1:]))
    if start.words:
        state.values["0"] = start.words[0]
    state.removed = dict.fromkeys(start.unset)
    state.log = start.log
    read(Source(start.source.name, word.text, word.marks), into, state, replace(start, words=()))
    into.files.depth -= 1


def given(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """Return the arguments of a script or function, None where they are those of a caller that is not known."""
    return None if any(word.doubts and word.text in ("$@", "$*") for word in words) else tuple(words)


class Walk:
    """One text being read."""

    def __init__(self, script: Script, into: Gathered, outer: Start, depth: int = 0) -> None:
        self.script, self.into, self.outer, self.depth = script, into, outer, depth
        self.under: list[Remark] = []
        self.stdin: Word | None = None  # what the command that is being read gets
        self.more: list[Node] = []  # words of a command that stand behind its redirections

    def block(self, nodes: Sequence[Node]) -> None:
        """Read statements one after the other."""
        unsure = unread.beside(self.script, nodes)
        for node in nodes:
            if self.script.state.ended:
                unread.behind_end(self, node)
            elif node.start_byte in unsure:
                unread.tell(self, node)
            elif node.type not in _IGNORED:
                self.statement(node)

    def statement(self, node: Node, log: Word | None = None, stdin: Word | None = None) -> None:
        """Read one statement; ``log`` and ``stdin`` are what redirections and pipes around it say."""
        kind = node.type
        if kind in ("redirected_statement", "pipeline", "list") and unread.beside(self.script, node.children):
            unread.tell(self, node)
        elif kind == "redirected_statement":
            shell_pipes.redirected(self, node, log, stdin)
        elif kind == "pipeline":
            shell_pipes.pipeline(self, [child for child in node.children if child.is_named], log, stdin)
        elif kind in _COMMANDS and unread.readable(node):
            self.command(node, log, stdin)
        elif kind in ("compound_statement", "subshell", "do_group"):
            self._group(node, log)
        elif kind == "list":
            shell_ways.both(self, node, log)
        elif kind == "negated_command":
            for child in node.children:
                if child.is_named:
                    self.statement(child, log, stdin)
        elif kind in _READERS:
            _READERS[kind](self, node)
        elif kind != "test_command" and node.is_named:
            unread.tell(self, node)

    def tell(self, before: int, remark: Remark) -> None:
        """Give a remark to the servers found since ``before``."""
        for at in range(before, len(self.into.servers)):
            server = self.into.servers[at]
            self.into.servers[at] = replace(server, remarks=(*server.remarks, remark))

    def _group(self, node: Node, log: Word | None) -> None:
        kept, outer_log = self.script.state, self.script.state.log
        if node.type == "subshell":
            self.script.state = kept.copy()
        if log is not None:
            self.script.state.log = log
        self.block([child for child in node.children if child.type not in ("(", ")", "{", "}", "do", "done")])
        self.script.state.log = outer_log
        self.script.state = kept

    def branch(self, nodes: Sequence[Node], doubt: Remark, *, failing: bool = False) -> None:
        """Read statements that only the host knows to be run.

        Args:
            nodes: the statements.
            doubt: says the condition.
            failing: they run when something went wrong (``… || exit 1``), and change nothing of the way that is read.
        """
        kept = self.script.state
        self.script.state = kept.copy()
        self.under.append(doubt)
        self.block(nodes)
        self.under.pop()
        other, self.script.state = self.script.state, kept
        if not other.ended and not failing:
            kept.merge(other, doubt)

    def function(self, node: Node) -> None:
        """Keep a function for its calls."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.script.state.functions[self.script.text(name)] = (body, self.script)

    def command(self, node: Node, log: Word | None, stdin: Word | None) -> None:
        """Read one simple command."""
        script = self.script
        if node.type != "command":
            shell_variables.declare(script, node, self.into)
            return
        children = shell_variables.own_lines(script, node)
        assignments = [child for child in children if child.type == "variable_assignment"]
        for child in children:  # redirections may stand before the words
            if child.type == "herestring_redirect":
                stdin = shell_pipes.here(self, child, [])
            elif child.type == "file_redirect":
                log, _ = shell_pipes.file(self, child, log, NOTHING)
        words = script.words([*children, *self.more])
        self.more = []
        words = shell_variables.with_blanks(script, node, words)
        if log is not None and shell_pipes.writes(self, node, words, log, stdin):
            return
        if not words:
            for assignment in assignments:
                shell_variables.assign(script, assignment)
            return
        name = words[0].text
        if name in script.state.functions:
            self._call(node, words, assignments)
            return
        self.stdin = stdin
        if shell_builtins.run(self, node, words):
            return
        follow(self.start(node, words, assignments, log, stdin), self.into, step)

    def start(
        self, node: Node, words: Sequence[Word], assignments: Sequence[Node], log: Word | None, stdin: Word | None
    ) -> Start:
        """Return a command with everything the shell knows about it."""
        state = self.script.state
        own = shell_variables.prefix(self.script, assignments)
        env = {**state.environment(), **own}
        first = assignments[0] if assignments else node.child_by_field_name("name") or node
        remarks = (*self.outer.remarks, *state.doubts, *self.under, *shell_variables.not_exported(self.script, env))
        return replace(
            self.outer,
            source=self.script.source,
            where=self.script.where(first),
            quote=quote(self.script.slice(first.start_byte, node.end_byte)),
            words=tuple(words),
            env=env,
            unset=tuple(name for name in state.removed if name not in env),
            folder=state.folder,
            log=log if log is not None else state.log,
            python=state.python,
            stdin=stdin if stdin is not None else self.outer.stdin,
            remarks=remarks,
        )

    def _call(self, node: Node, words: Sequence[Word], assignments: Sequence[Node]) -> None:
        """Read a function's body in place of its call."""
        script = self.script
        if self.depth >= _DEEPEST_CALL:
            self.into.remarks.append(script.remark(node, "functions that call each other, deeper than launch reads"))
            return
        self.into.turn(script.source.name)
        body, home = script.state.functions[words[0].text]
        kept = script.state.arguments
        for name, value in shell_variables.prefix(script, assignments).items():
            script.state.set(name, value)
            script.state.export(name)
        script.state.arguments = given(words[1:])
        inner = Walk(home, self.into, self.outer, self.depth + 1)
        inner.under, home_state, home.state = self.under, home.state, script.state
        inner.statement(body)
        script.state = home.state
        if home is not script:
            home.state = home_state
        script.state.arguments = kept
        script.state.ended = False  # `return` ends the function alone


_READERS: dict[str, Callable[[Walk, Node], None]] = {
    "function_definition": Walk.function,
    "if_statement": shell_ways.choose,
    "case_statement": shell_ways.case,
    **dict.fromkeys(("for_statement", "c_style_for_statement", "while_statement"), shell_loops.read),
}
