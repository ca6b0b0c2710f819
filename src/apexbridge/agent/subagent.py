"""Child sessions: how many, how deep, and never a skill as its own child."""

from dataclasses import dataclass, replace

from apexbridge.agent.limits import TurnLimits
from apexbridge.agent.session import Lent, Session
from apexbridge.errors import SkillNotInvocableError
from apexbridge.tools.base import SubagentRequest


@dataclass(slots=True)
class Family:
    """All the child sessions that one turn of a person has brought about, at any depth."""

    count: int = 0

    def admit(self, parent: Session, request: SubagentRequest, limits: TurnLimits) -> None:
        """Count one more child.

        Raises:
            SkillNotInvocableError: If its skill is at work above, or it would be too deep or one
                too many.
        """
        name = name_of(request)
        if name in parent.chain:
            raise SkillNotInvocableError(code="fork_recursion", name=name)
        if parent.depth >= limits.depth:
            raise SkillNotInvocableError(code="fork_too_deep", name=name, limit=limits.depth)
        if self.count >= limits.children:
            raise SkillNotInvocableError(code="fork_too_many", name=name, limit=limits.children)
        self.count += 1


def name_of(request: SubagentRequest) -> str:
    """What a child is known by in the line of those below it."""
    return request.skill or request.agent


def raise_child(child: Session, parent: Session, request: SubagentRequest) -> None:
    """Give a new session what it has from its parent: place and bounds, and no history."""
    child.hooks = parent.hooks.below()
    child.parent_id, child.cwd = parent.id, parent.cwd
    child.chain = (*parent.chain, name_of(request))
    child.profile, child.system = request.agent, parent.system
    child.reach = list(parent.reach)
    child.bounds = replace(Lent(), restrictions=parent.lent.restrictions, denied=parent.lent.denied)
