"""What may be changed of an installed skill: its description, and nothing else."""

from collections.abc import Mapping

from apexbridge.errors import SkillError, SkillInvalidError
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem

EDITABLE = "description"
_NAMED = 10
_LONGEST = 60


def wanted_description(fields: Mapping[str, object]) -> str:
    """The new description that a change from outside asks for.

    Raises:
        SkillError: `field_not_editable`, with the names of all other fields; nothing may be
            changed then, not even the description.
        SkillInvalidError: If there is no description among them, or it is no text.
    """
    others = [str(name)[:_LONGEST] for name in fields if name != EDITABLE]
    if others:
        more = [f"+{len(others) - _NAMED}"] if len(others) > _NAMED else []
        named = ", ".join((*others[:_NAMED], *more))
        raise SkillError(code="field_not_editable", fields=named)
    if EDITABLE not in fields:
        raise SkillInvalidError(SKILL_MD, [Problem(code="description_missing", where=SKILL_MD)])
    text = fields[EDITABLE]
    if not isinstance(text, str):
        told = Problem(code="field_not_text", where=SKILL_MD, details={"key": EDITABLE})
        raise SkillInvalidError(SKILL_MD, [told])
    return text
