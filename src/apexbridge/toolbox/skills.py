"""The tools about skills: invoke one, search them, run a script, and the ShipMyAgent channel."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.activation.activator import Activator, Invocation, Situation
from apexbridge.activation.scripts import ScriptCall
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.section import find_for_load, skill_entry, skill_id
from apexbridge.errors import ToolFailedError
from apexbridge.events import Trigger
from apexbridge.policy.rules import PermissionRequest
from apexbridge.retrieval.results import Results
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills.model import Skill
from apexbridge.toolbox.reaching import locate, open_parent, open_plain
from apexbridge.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from apexbridge.tools.capping import cap_text
from apexbridge.tools.typed import Arguments, TypedTool, schema_of

SituationOf = Callable[[str], Situation]
"""What a session has seen, by the session's id."""
MAX_HITS = 20
MAX_INPUT_BYTES = 32 * 1024 * 1024

_NAME = AliasChoices("skill", "name", "command", "skill_name")


class SkillArguments(Arguments):
    """Which skill, and for what."""

    skill: str = Field(validation_alias=_NAME, description="The skill's name.")
    arguments: str = Field(
        default="",
        validation_alias=AliasChoices("arguments", "args"),
        description="What the skill is to work on, in words.",
    )


class SkillTool(TypedTool[SkillArguments]):
    """Invokes a skill."""

    def __init__(self, activator: Activator, situation: SituationOf) -> None:
        description = (
            "Invoke a skill by its name. Its instructions then stand in the conversation: follow "
            "them. Invoke only skills that were listed or found."
        )
        schema = schema_of(SkillArguments)
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
        search: Callable[[str, int], Awaitable[Results]],
        catalog: Catalog,
        situation: SituationOf,
    ) -> None:
        description = (
            "Find skills that fit a task, by meaning, in English or Chinese. Gives names, how well "
            "each fits (0 to 1) and what it does."
        )
        schema = schema_of(SearchArguments)
        super().__init__(
            ToolSpec(
                name="SkillSearch", description=description, input_schema=schema, read_only=True
            ),
            SearchArguments,
        )
        self._search = search
        self._catalog = catalog
        self._situation = situation

    def asks(self, arguments: SearchArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Looking is harmless."""
        return (PermissionRequest(tool=self.spec.name, argument=arguments.query, harmless=True),)

    async def act(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        """Search, and leave out what the model may not call."""
        found = await self._search(arguments.query, arguments.limit)
        waking = self._situation(context.session_id).waking
        by_name = {skill.name: skill for skill in self._catalog.skills}
        lines, names = list[str](), list[str]()
        for hit in found.hits:
            skill = by_name.get(hit.name)
            if skill is None or skill.manifest.disable_model_invocation:
                continue
            state = " (asleep until its files are touched)" if waking.is_asleep(skill) else ""
            text = cap_text(skill.summary, 600)
            lines.append(f"- {skill.name} ({hit.score:.2f}){state}: {text}")
            names.append(skill.name)
        head = f"Confidence that any of them fits: {found.confidence:.2f}"
        if found.problem is not None:
            head += f"\nFound by words only: {found.problem.message}"
        text = "\n".join((head, *lines)) if lines else "No skill fits."
        data = {"names": names, "confidence": found.confidence}
        return ToolResult(text=text, data=data)


class ScriptArguments(Arguments):
    """Which script, with what."""

    skill: str = Field(validation_alias=_NAME, description="The skill's name.")
    script: str = Field(default="", description="The script, if there is more than one.")
    arguments: list[str] = Field(
        default_factory=list[str],
        validation_alias=AliasChoices("arguments", "args"),
        description="Its arguments, one by one.",
    )
    files: list[str] = Field(
        default_factory=list[str],
        description="Files of the workspace that the script needs; it finds them by these names.",
    )
    stdin: str = Field(default="", description="What it reads from standard input.")


class SkillScriptTool(TypedTool[ScriptArguments]):
    """Runs a skill's script in the sandbox."""

    def __init__(
        self,
        execute: Callable[[ScriptCall], Awaitable[ExecutionResult]],
        find: Callable[[str], Skill],
        is_isolated: Callable[[], bool],
    ) -> None:
        description = (
            "Run a script of a skill in a sandbox: no network, and of your files only those named "
            "in `files`. Gives what it printed and the files it made."
        )
        schema = schema_of(ScriptArguments)
        super().__init__(
            ToolSpec(name="SkillScript", description=description, input_schema=schema),
            ScriptArguments,
        )
        self._execute = execute
        self._find = find
        self._is_isolated = is_isolated

    def asks(self, arguments: ScriptArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """In a sandbox a script can harm nothing; the files it gets are read."""
        words = " ".join(filter(None, (arguments.skill, arguments.script)))
        places = [locate(file, context, self.spec.name) for file in arguments.files]
        reads = (
            PermissionRequest(tool="Read", argument=str(place.path), harmless=True)
            for place in places
        )
        own = PermissionRequest(tool=self.spec.name, argument=words, harmless=self._is_isolated())
        return (own, *reads)

    async def act(self, arguments: ScriptArguments, context: ToolContext) -> ToolResult:
        """Run it to its end."""
        inputs = await anyio.to_thread.run_sync(self._inputs, arguments.files, context)
        result = await self._execute(
            ScriptCall(
                skill=self._find(arguments.skill),
                script=arguments.script,
                arguments=tuple(arguments.arguments),
                inputs=inputs,
                stdin=arguments.stdin.encode(),
            )
        )
        return script_result(result)

    def _inputs(self, files: Sequence[str], context: ToolContext) -> dict[str, bytes]:
        inputs, room = dict[str, bytes](), MAX_INPUT_BYTES
        for name in files:
            place = locate(name, context, self.spec.name)
            with open_parent(place) as parent, open_plain(place, parent) as file:
                data = file.read(room + 1)
            room -= len(data)
            if room < 0:
                raise ToolFailedError("the files are too large together", name=self.spec.name)
            inputs[place.path.name] = data
        return inputs


def script_result(result: ExecutionResult) -> ToolResult:
    """What a script did, as the model reads it."""
    parts = [cap_text(result.stdout.decode("utf-8", "replace").rstrip())]
    errors = result.stderr.decode("utf-8", "replace").rstrip()
    if errors:
        parts.append(f"stderr:\n{cap_text(errors, 8_000)}")
    if result.truncated:
        parts.append("(its output was cut)")
    if result.produced:
        made = "\n".join(f"- {name}: {len(data)} bytes" for name, data in result.produced.items())
        parts.append(f"Files it made:\n{made}")
    if result.outcome != "ok":
        why = result.error or f"exit code {result.exit_code}"
        parts.append(f"It did not succeed ({result.outcome}): {why}")
    text = "\n\n".join(part for part in parts if part) or "(it printed nothing)"
    data = {"exit_code": result.exit_code, "outcome": result.outcome}
    return ToolResult(text=text, is_error=result.outcome != "ok", data=data)


class ListArguments(Arguments):
    """Nothing needs to be said."""


class SkillsListTool(TypedTool[ListArguments]):
    """The ShipMyAgent channel's list."""

    def __init__(self, skills: Callable[[], Sequence[Skill]]) -> None:
        schema = schema_of(ListArguments)
        description = "List the skills there are, each with id, name, description and tools."
        super().__init__(
            ToolSpec(
                name="skills_list", description=description, input_schema=schema, read_only=True
            ),
            ListArguments,
        )
        self._skills = skills

    def asks(self, arguments: ListArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Looking is harmless."""
        return (PermissionRequest(tool=self.spec.name, harmless=True),)

    async def act(self, arguments: ListArguments, context: ToolContext) -> ToolResult:
        """List them."""
        entries = [skill_entry(skill) for skill in _for_model(self._skills())]
        text = json.dumps({"skills": entries}, ensure_ascii=False)
        return ToolResult(text=cap_text(text, keeps="start", hint="search with SkillSearch"))


class LoadArguments(Arguments):
    """Which skill."""

    name: str = Field(
        validation_alias=AliasChoices("name", "id", "skill"),
        description="The skill's id, name, or part of its name.",
    )


class SkillsLoadTool(TypedTool[LoadArguments]):
    """The ShipMyAgent channel's load: the text as it stands, and where it lies."""

    def __init__(self, catalog: Catalog) -> None:
        schema = schema_of(LoadArguments)
        description = "Read the instructions of a skill by its id or name."
        super().__init__(
            ToolSpec(
                name="skills_load", description=description, input_schema=schema, read_only=True
            ),
            LoadArguments,
        )
        self._catalog = catalog

    def asks(self, arguments: LoadArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """To read a skill is to use it: the same rules count."""
        skill = find_for_load(_for_model(self._catalog.skills), arguments.name)
        return (PermissionRequest(tool="Skill", argument=skill.name, harmless=True),)

    async def act(self, arguments: LoadArguments, context: ToolContext) -> ToolResult:
        """Read it through its source."""
        skill = find_for_load(_for_model(self._catalog.skills), arguments.name)
        content = await self._catalog.content(skill)
        where = f"Folder: {skill.root}\n" if skill.root else ""
        text = f"Id: {skill_id(skill)}\nName: {skill.name}\n{where}\n{content.body}"
        return ToolResult(text=cap_text(text))


def _for_model(skills: Sequence[Skill]) -> list[Skill]:
    return [skill for skill in skills if not skill.manifest.disable_model_invocation]


ALIASES: Mapping[str, tuple[str, ...]] = {"SkillSearch": ("VectorSearch",)}
SkillTools = Sequence[tuple[Tool, Sequence[str]]]
