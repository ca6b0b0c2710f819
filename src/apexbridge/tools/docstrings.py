"""What a function's docstring says to a model: what it does, and what each parameter is."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|参数|返回|异常|示例)[:：]\s*"
)
_PARAMETERS = {"Args", "Arguments", "Parameters", "参数"}
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:[(（][^)）]*[)）])?\s*[:：]\s*(.*)")


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description, up to the first section, and the parameters' own lines."""
    lines = (inspect.getdoc(function) or "").splitlines()
    sections, current = dict[str, list[str]](), "description"
    for line in lines:
        title = _SECTION.fullmatch(line)
        current = title[1] if title else current
        sections.setdefault(current, []).extend([] if title else [line])
    described = dict[str, str]()
    for name in _PARAMETERS & sections.keys():
        described |= _entries(sections[name])
    return "\n".join(sections.get("description", [])).strip(), described


def _entries(lines: Iterable[str]) -> dict[str, str]:
    """`name: text` or `name (type): text`; lines further in go on with the text before."""
    entries, name, depth = dict[str, str](), "", 0
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        found = _ENTRY.fullmatch(text)
        if found and (not name or indent <= depth):
            name, depth = found[1], indent
            entries[name] = found[2]
        elif name and text:
            entries[name] = f"{entries[name]} {text}".strip()
    return entries
