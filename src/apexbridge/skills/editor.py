"""Edit the description of a SKILL.md without changing any other byte.

The span of the YAML value is replaced by a quoted scalar, and the result is parsed again and
compared field by field: an edit that cannot be verified is refused.
"""

import json
import re

from apexbridge.errors import SkillInvalidError
from apexbridge.skills.document import SKILL_MD, Document
from apexbridge.skills.frontmatter import Frontmatter
from apexbridge.skills.model import Problem
from apexbridge.skills.parser import MAX_DESCRIPTION, parse_document

# Characters that YAML takes for line breaks or rejects, beyond those that JSON escapes.
_ESCAPE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def edit_description(data: bytes, description: str) -> bytes:
    """Replace the description in the bytes of a SKILL.md.

    Raises:
        SkillInvalidError: If the file cannot be read, the text breaks a rule of descriptions, or
            the change could not be made without touching anything else.
    """
    _check(description)
    opened = parse_document(data)
    if isinstance(opened, Problem):
        raise _invalid_error(opened)
    cut, values = opened
    if values.values.get("description") == description:
        return data
    start, end, text = _splice(cut, values, description)
    edited = (cut.text[:start] + text + cut.text[end:]).encode("utf-8")
    _verify(cut, values, edited, description)
    return edited


def _check(description: str) -> None:
    details = {"length": len(description), "limit": MAX_DESCRIPTION}
    if not description.strip():
        raise _invalid_error(Problem(code="description_empty", where=SKILL_MD))
    if len(description) > MAX_DESCRIPTION:
        raise _invalid_error(Problem(code="description_too_long", where=SKILL_MD, details=details))
    if re.search(r"[\ud800-\udfff]", description):
        raise _invalid_error(_not_text_problem())


def _splice(cut: Document, values: Frontmatter, description: str) -> tuple[int, int, str]:
    """Return the span of the old value and the text that replaces it."""
    quoted = quote(description)
    span = values.spans.get("description")
    if span is None and ("description" in values.values or values.is_flow):
        raise _invalid_error(_not_text_problem())
    if span is None:
        return cut.start, cut.start, f"description: {quoted}{cut.newline}"
    start, end = cut.start + span.start, cut.start + span.end
    # A block scalar's span runs up to the next entry: the blank lines between do not belong to it.
    end = start + len(cut.text[start:end].rstrip())
    needs_blank = cut.text[start - 1 : start] == ":"
    return start, end, f" {quoted}" if needs_blank else quoted


def quote(text: str) -> str:
    """Quote a text as a double-quoted YAML scalar on one line."""
    return _ESCAPE.sub(lambda char: f"\\u{ord(char[0]):04x}", json.dumps(text, ensure_ascii=False))


def _verify(cut: Document, before: Frontmatter, edited: bytes, description: str) -> None:
    opened = parse_document(edited)
    if isinstance(opened, Problem):
        raise _invalid_error(opened)
    new_cut, after = opened
    others = {key: value for key, value in before.values.items() if key != "description"}
    unchanged = {key: value for key, value in after.values.items() if key != "description"}
    is_written = after.values["description"] == description
    if (unchanged, new_cut.body) != (others, cut.body) or not is_written:
        detail = "it cannot be replaced without changing something else"
        raise _invalid_error(
            Problem.error("field_invalid", SKILL_MD, key="description", detail=detail)
        )


def _not_text_problem() -> Problem:
    return Problem.error("field_not_text", SKILL_MD, key="description")


def _invalid_error(problem: Problem) -> SkillInvalidError:
    return SkillInvalidError(problem.where, [problem])
