"""The tools about skills: invoke one, search them, and the ShipMyAgent channel."""

import json
from collections.abc import Awaitable, Callable, Sequence

from pydantic import AliasChoices, Field

from apexbridge.activation.activator import ActivationContext, Activator, Invocation
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.listing_budget import to_single_line
from apexbridge.catalog.prompt_formats import find_for_load, skill_entry, skill_id
from apexbridge.events import Trigger
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.retrieval.results import SearchResults
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool, arguments_schema

ActivationContextFactory = Callable[[str], ActivationContext]
"""What a session has seen, by the session's id."""
IsForbidden = Callable[[str], bool]
"""Whether a rule forbids the skill of a name: to the model it is not there."""
MAX_HITS = 20

SKILL_NAME = AliasChoices("skill", "name", "command", "skill_name")


class SkillArguments(Arguments):
    """Which skill, and for what."""

    skill: str = Field(validation_alias=SKILL_NAME, description="The skill's name.")
    arguments: str = Field(
        default="",
        validation_alias=AliasChoices("arguments", "args"),
        description="What the skill is to work on, in words.",
    )


class SkillTool(TypedTool[SkillArguments]):
    """Invokes a skill."""

    def __init__(self, activator: Activator, situation: ActivationContextFactory) -> None:
        description = (
            "Invoke a skill by its name. Its instructions then stand in the conversation: follow "
            "them. Invoke only skills that were listed or found."
        )
        schema = arguments_schema(SkillArguments)
        super().__init__(
            ToolSpec(name="Skill", description=description, input_schema=schema), SkillArguments
        )
        self._activator = activator
        self._situation = situation

    def asks(self, arguments: SkillArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Nothing here: the invocation itself is judged, whichever way it comes."""
        return ()

    async def act(self, arguments: SkillArguments, context: ToolContext) -> ToolResult:
        """Invoke it."""
        situation = self._situation(context.session_id)
        trigger: Trigger = "nested" if situation.applied else "model"
        if context.depth:
            trigger = "fork"
        wish = Invocation(name=arguments.skill, arguments=arguments.arguments, trigger=trigger)
        return await self._activator.activate(wish, situation, context)


class SearchArguments(Arguments):
    """What to look for."""

    query: str = Field(
        min_length=1, max_length=2_000, description="The task, in English or Chinese."
    )
    limit: int = Field(default=5, ge=1, le=MAX_HITS, description="How many at most.")


class SkillSearchTool(TypedTool[SearchArguments]):
    """Finds skills by meaning."""

    def __init__(
        self,
        search: Callable[[str, int], Awaitable[SearchResults]],
        catalog: Catalog,
        situation: ActivationContextFactory,
        forbids: IsForbidden,
    ) -> None:
        description = (
            "Find skills that fit a task, by meaning, in English or Chinese. Gives names, how well "
            "each fits (0 to 1) and what it does."
        )
        schema = arguments_schema(SearchArguments)
        super().__init__(
            ToolSpec(
                name="SkillSearch", description=description, input_schema=schema, read_only=True
            ),
            SearchArguments,
        )
        self._search = search
        self._catalog = catalog
        self._situation = situation
        self._forbids = forbids

    def asks(self, arguments: SearchArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Looking is harmless."""
        return (PermissionRequest(tool=self.spec.name, argument=arguments.query, harmless=True),)

    async def act(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        """Search, and leave out what the model may not call."""
        found = await self._search(arguments.query, arguments.limit)
        activation = self._situation(context.session_id).path_activation
        winner = self._catalog.snapshot.winner
        lines, names = list[str](), list[str]()
        for hit in found.hits:
            skill = winner(hit.name)
            if skill is None or not _is_model_invocable(skill, self._forbids):
                continue
            state = " (asleep until its files are touched)" if activation.is_asleep(skill) else ""
            text = truncate_text(to_single_line(skill.summary), 600)
            lines.append(f"- {skill.name} ({hit.score:.2f}){state}: {text}")
            names.append(skill.name)
        head = f"Confidence that any of them fits: {found.confidence:.2f}"
        if found.problem is not None:
            head += f"\nFound by words only: {found.problem.message}"
        text = "\n".join((head, *lines)) if lines else "No skill fits."
        data = {"names": names, "confidence": found.confidence}
        return ToolResult(text=text, data=data)


class ListArguments(Arguments):
    """Nothing needs to be said."""


class SkillsListTool(TypedTool[ListArguments]):
    """The ShipMyAgent channel's list."""

    def __init__(
        self,
        skills: Callable[[], Sequence[Skill]],
        situation: ActivationContextFactory,
        forbids: IsForbidden,
    ) -> None:
        schema = arguments_schema(ListArguments)
        description = "List the skills there are, each with id, name, description and tools."
        super().__init__(
            ToolSpec(
                name="skills_list", description=description, input_schema=schema, read_only=True
            ),
            ListArguments,
        )
        self._skills = skills
        self._situation = situation
        self._forbids = forbids

    def asks(self, arguments: ListArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Looking is harmless."""
        return (PermissionRequest(tool=self.spec.name, harmless=True),)

    async def act(self, arguments: ListArguments, context: ToolContext) -> ToolResult:
        """List them."""
        skills = self._situation(context.session_id).path_activation.visible(self._skills())
        entries = [
            skill_entry(skill) for skill in skills if _is_model_invocable(skill, self._forbids)
        ]
        text = json.dumps({"skills": entries}, ensure_ascii=False)
        return ToolResult(text=truncate_text(text, keeps="start", hint="search with SkillSearch"))


class LoadArguments(Arguments):
    """Which skill."""

    name: str = Field(
        validation_alias=AliasChoices("name", "id", "skill"),
        description="The skill's id, name, or part of its name.",
    )


class SkillsLoadTool(TypedTool[LoadArguments]):
    """The ShipMyAgent channel's load: the text as it stands, and where it lies."""

    def __init__(
        self, catalog: Catalog, situation: ActivationContextFactory, forbids: IsForbidden
    ) -> None:
        schema = arguments_schema(LoadArguments)
        description = "Read the instructions of a skill by its id or name."
        super().__init__(
            ToolSpec(
                name="skills_load", description=description, input_schema=schema, read_only=True
            ),
            LoadArguments,
        )
        self._catalog = catalog
        self._situation = situation
        self._forbids = forbids

    def asks(self, arguments: LoadArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """To read a skill is to use it: the same rules count."""
        name = self._find(arguments, context).name
        return (PermissionRequest(tool="Skill", argument=name, harmless=True),)

    async def act(self, arguments: LoadArguments, context: ToolContext) -> ToolResult:
        """Read it through its source."""
        skill = self._find(arguments, context)
        content = await self._catalog.content(skill)
        where = f"Folder: {skill.root}\n" if skill.root else ""
        text = f"Id: {skill_id(skill)}\nName: {skill.name}\n{where}\n{content.body}"
        return ToolResult(text=truncate_text(text))

    def _find(self, arguments: LoadArguments, context: ToolContext) -> Skill:
        skills = [
            skill for skill in self._catalog.skills if _is_model_invocable(skill, self._forbids)
        ]
        skill = find_for_load(skills, arguments.name)
        return self._catalog.get_for_model(
            skill.name, self._situation(context.session_id).path_activation
        )


def _is_model_invocable(skill: Skill, forbids: IsForbidden) -> bool:
    return not (skill.manifest.disable_model_invocation or forbids(skill.name))
