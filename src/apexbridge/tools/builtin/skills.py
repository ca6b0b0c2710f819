"""Skill tools: invoke and search skills (progressive disclosure), and the ShipMyAgent protocol."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from pydantic import AliasChoices, Field

from apexbridge.activation.activator import ActivationContext, Activator, Invocation
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.listing_budget import to_single_line
from apexbridge.catalog.prompt_formats import (
    display_name,
    find_for_load,
    skill_entry,
    skill_id,
)
from apexbridge.events import Trigger
from apexbridge.models.intent_rules import is_chinese
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.retrieval.results import Hit, SearchResults
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

ActivationContextFactory = Callable[[str], ActivationContext]
"""Return the activation context of a session, by its id."""
IsForbidden = Callable[[str], bool]
"""Say whether a rule is_forbidden a skill; such a skill is hidden from the model."""
MAX_HITS = 20
MAX_QUERY_CHARS = 2_000
MAX_REQUEST_CHARS = 400
"""Up to this length a user's request is added to the search as another wording."""
MAX_SUMMARY_CHARS = 600
MAX_ALIKE = 3
"""Near duplicates named in the line of a hit."""
WEAK_MATCH = "weak match"
MAX_LOADED_CHARS = 100_000
"""A longer SKILL.md is truncated; more than 5,000 tokens (20,000 characters) are too many."""
_READ_HINT = "read them with Read in SKILL.md"

SKILL_NAME = AliasChoices("skill", "name", "command", "skill_name")


class SkillArguments(Arguments):
    """Arguments of Skill."""

    skill: str = Field(validation_alias=SKILL_NAME, description="The skill's name.")
    arguments: str = Field(
        default="",
        validation_alias=AliasChoices("arguments", "args"),
        description="What the skill is to work on, in words.",
    )


class SkillTool(TypedTool[SkillArguments]):
    """Invoke a skill: its instructions enter the conversation."""

    def __init__(self, activator: Activator, activation_context: ActivationContextFactory) -> None:
        description = (
            "Invoke a skill by its name. Its instructions then stand in the conversation: follow "
            "them. Invoke only skills that were listed or found."
        )
        super().__init__("Skill", description, SkillArguments)
        self._activator = activator
        self._activation_context = activation_context

    def required_permissions(
        self, arguments: SkillArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request nothing: the activator checks every invocation, whatever its trigger."""
        return ()

    async def run(self, arguments: SkillArguments, context: ToolContext) -> ToolResult:
        """Invoke the skill."""
        activation_context = self._activation_context(context.session_id)
        trigger: Trigger = "nested" if activation_context.applied else "model"
        if context.depth:
            trigger = "fork"
        invocation = Invocation(
            name=arguments.skill, arguments=arguments.arguments, trigger=trigger
        )
        result = await self._activator.activate(invocation, activation_context, context)
        agent_id = result.data.get("agent_id")
        if not agent_id:
            return result
        note = f"(by the subagent {agent_id}, {result.data['agent']})"
        return replace(result, text=f"{result.text}\n\n{note}")


class SkillSearchFunction(Protocol):
    """Search of the skill index; wordings in English and Chinese are added to the query."""

    async def __call__(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
    ) -> SearchResults:
        """Return the best matches, and the confidence that any of them fits."""
        ...


class SearchArguments(Arguments):
    """Arguments of a skill search."""

    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, description="The need, in the user's own words."
    )
    query_en: str = Field(
        default="",
        max_length=MAX_QUERY_CHARS,
        description="The same need in English. Always give both: skills are in both languages.",
    )
    query_zh: str = Field(
        default="", max_length=MAX_QUERY_CHARS, description="The same need in Chinese."
    )
    limit: int = Field(default=5, ge=1, le=MAX_HITS, description="How many at most.")

    def wordings(self, request: str = "") -> dict[str, str | None]:
        """Return `query_en` and `query_zh`; the user's own request takes a place left empty.

        A wording is added to the query and never replaces it. A long request names several needs,
        and would blur a query for one of them.
        """
        given = {"query_en": self.query_en or None, "query_zh": self.query_zh or None}
        if len(request) <= MAX_REQUEST_CHARS and request.strip() not in {"", self.query}:
            place = "query_zh" if is_chinese(request) else "query_en"
            given[place] = given[place] or request
        return given


class SkillSearchTool(TypedTool[SearchArguments]):
    """Search skills by semantic similarity."""

    def __init__(
        self,
        search: SkillSearchFunction,
        catalog: Catalog,
        activation_context: ActivationContextFactory,
        is_forbidden: IsForbidden,
        *,
        threshold: float,
    ) -> None:
        description = (
            "Find skills that fit a task, by meaning, in English or Chinese. Gives names, how well "
            "each fits (0 to 1, or a weak match) and what it does."
        )
        super().__init__("SkillSearch", description, SearchArguments, read_only=True)
        self._search = search
        self._catalog = catalog
        self._activation_context = activation_context
        self._is_forbidden = is_forbidden
        self._threshold = threshold

    def required_permissions(
        self, arguments: SearchArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request a harmless search."""
        return (PermissionRequest(tool=self.spec.name, argument=arguments.query, harmless=True),)

    async def run(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        """Search, without the skills that the model may not invoke."""
        found = await self._search(
            arguments.query, limit=arguments.limit, **arguments.wordings(context.request)
        )
        activation = self._activation_context(context.session_id).path_activation
        winner = self._catalog.snapshot.winner
        lines, names = list[str](), list[str]()
        for hit in visible_hits(found, self._is_visible):
            skill = winner(hit.name)
            if skill is None:
                continue
            state = " (asleep until its files are touched)" if activation.is_inactive(skill) else ""
            lines.append(format_hit(hit, skill.summary, self._threshold, state=state))
            names.append(skill.name)
        text = format_hits(lines, found, self._threshold)
        data = {"names": names, "confidence": found.confidence}
        return ToolResult(text=text, data=data)

    def _is_visible(self, name: str) -> bool:
        skill = self._catalog.snapshot.winner(name)
        return skill is not None and _is_model_invocable(skill, self._is_forbidden)


def visible_hits(found: SearchResults, is_visible: Callable[[str], bool]) -> Iterator[Hit]:
    """Yield the hits without hidden names, also among the near duplicates."""
    visible = (hit.visible(is_visible) for hit in found.hits)
    return (hit for hit in visible if hit is not None)


def format_hit(hit: Hit, summary: str, threshold: float, *, state: str = "") -> str:
    """Format a hit as one line: name, fit, description and near duplicates."""
    # No number for a weak match: a model reads 0.03 as "unrelated", and it may be the one.
    fit = f"{hit.score:.2f}" if hit.match(threshold) == "good" else WEAK_MATCH
    text = truncate_text(to_single_line(summary), MAX_SUMMARY_CHARS)
    alike = ", ".join(map(to_single_line, hit.alike[:MAX_ALIKE]))
    return f"- {hit.name} ({fit}){state}: {text}" + (f" (alike: {alike})" if alike else "")


def format_hits(lines: Sequence[str], found: SearchResults, threshold: float) -> str:
    """Format the text of a search result; below the threshold it names the nearest skills."""
    if not lines:
        return "No skill was found."
    head = "No clear match; the nearest are:"
    if found.confidence >= threshold:
        head = f"Confidence that any of them fits: {found.confidence:.2f}"
    if found.problem is not None:
        head += f"\nFound by words only: {found.problem.message}"
    return "\n".join((head, *lines))


class ListArguments(Arguments):
    """Arguments of skills_list."""


class SkillsListTool(TypedTool[ListArguments]):
    """List skills as JSON, in the ShipMyAgent protocol."""

    def __init__(
        self,
        skills: Callable[[], Sequence[Skill]],
        activation_context: ActivationContextFactory,
        is_forbidden: IsForbidden,
    ) -> None:
        description = "List the skills there are, each with id, name, description and tools."
        super().__init__("skills_list", description, ListArguments, read_only=True)
        self._skills = skills
        self._activation_context = activation_context
        self._is_forbidden = is_forbidden

    def required_permissions(
        self, arguments: ListArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request a harmless listing."""
        return (PermissionRequest(tool=self.spec.name, harmless=True),)

    async def run(self, arguments: ListArguments, context: ToolContext) -> ToolResult:
        """List the skills that are visible to the model."""
        skills = self._activation_context(context.session_id).path_activation.visible(
            self._skills()
        )
        entries = [
            skill_entry(skill) for skill in skills if _is_model_invocable(skill, self._is_forbidden)
        ]
        text = json.dumps({"skills": entries}, ensure_ascii=False)
        return ToolResult(text=truncate_text(text, keeps="start", hint="search with SkillSearch"))


class LoadArguments(Arguments):
    """Arguments of skills_load."""

    name: str = Field(
        validation_alias=AliasChoices("name", "id", "skill"),
        description="The skill's id, name, or part of its name.",
    )


class SkillsLoadTool(TypedTool[LoadArguments]):
    """Load a skill's instructions, in the ShipMyAgent protocol."""

    def __init__(
        self,
        catalog: Catalog,
        activation_context: ActivationContextFactory,
        is_forbidden: IsForbidden,
    ) -> None:
        description = "Read a skill's whole SKILL.md by its id, its name or a part of its name."
        super().__init__("skills_load", description, LoadArguments, read_only=True)
        self._catalog = catalog
        self._activation_context = activation_context
        self._is_forbidden = is_forbidden

    def required_permissions(
        self, arguments: LoadArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request the invocation of the skill: to read it is to use it."""
        name = self._find(arguments, context).name
        return (PermissionRequest(tool="Skill", argument=name, harmless=True),)

    async def run(self, arguments: LoadArguments, context: ToolContext) -> ToolResult:
        """Read the skill through its source."""
        skill = self._find(arguments, context)
        where = f"Folder: {skill.root}\n" if skill.root else ""
        head = f"Id: {skill_id(skill)}\nName: {display_name(skill)}\n{where}\n"
        text = head + await self._catalog.skill_md(skill)
        return ToolResult(text=truncate_text(text, MAX_LOADED_CHARS, hint=_READ_HINT))

    def _find(self, arguments: LoadArguments, context: ToolContext) -> Skill:
        skills = [
            skill
            for skill in self._catalog.skills
            if _is_model_invocable(skill, self._is_forbidden)
        ]
        skill = find_for_load(skills, arguments.name)
        return self._catalog.get_for_model(
            skill.name, self._activation_context(context.session_id).path_activation
        )


def _is_model_invocable(skill: Skill, is_forbidden: IsForbidden) -> bool:
    return not (skill.manifest.disable_model_invocation or is_forbidden(skill.name))
