"""What Python programs do, and pieces of Python in documents: data that flows, work on the side."""

from collections.abc import Iterator

from apexbridge.vetting.flows import Flow, flows_in, tree_of
from apexbridge.vetting.patterns import PARTIAL, Hit, Setting
from apexbridge.vetting.rulebook import Level, lowered
from apexbridge.vetting.sidework import Aside, asides
from apexbridge.vetting.view import Unit, View

_HUSHES = ("except", " as _")
"""Without one of these a program hides nothing; a quick look saves a slow one."""

MAX_PIECES = 200
"""How many pieces of a document are followed."""


def program_hits(view: View, setting: Setting, max_bytes: int) -> Iterator[Hit]:
    """Follow every program in a file, as far as it is not too large."""
    pieces = [unit for unit in view.units if unit.language == "python"]
    for unit in pieces[:MAX_PIECES]:
        source = view.raw if unit.place == "script" else _inside(view, unit)
        tree = tree_of(source) if len(source) <= max_bytes else None
        found = flows_in(tree) if tree else None
        if tree is None or found is None:
            yield Hit(rule=PARTIAL, level="review", line=0, matched=f"data flow of {view.path}")
            continue
        steps = _steps(unit, setting)
        before = 0 if unit.place == "script" else unit.first
        for flow in found:
            yield _flowing(flow, view, before, steps)
        if unit.place == "script" and any(word in source for word in _HUSHES):
            for aside in asides(tree):
                yield _aside(aside, view)


def _inside(view: View, unit: Unit) -> str:
    """The lines between two fences, moved to the left as a whole."""
    lines = view.raw_lines[unit.first : unit.last - 1]
    blank = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[blank:] for line in lines)


def _steps(unit: Unit, setting: Setting) -> int:
    if unit.place == "script":
        return 0
    return 1 + int(unit.place == "reference") + int(setting.is_about_security)


def _flowing(flow: Flow, view: View, before: int, steps: int) -> Hit:
    if flow.end == "sent":
        rule, level = "AB021", "block"
    else:
        rule, level = ("AB030", "block") if flow.kind == "decoded" else ("AB011", "warn")
    line = flow.line + before
    shown = view.raw_lines[line - 1].strip()
    return Hit(rule=rule, level=lowered(level, steps), line=line, matched=shown)


def _aside(aside: Aside, view: View) -> Hit:
    level: Level = "warn" if aside.is_at_import else "review"
    shown = view.raw_lines[aside.line - 1].strip()
    return Hit(rule="AB048", level=level, line=aside.line, matched=shown)
