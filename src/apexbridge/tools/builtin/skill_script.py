"""SkillScript: a skill's script run in the sandbox, and what it made put into the workspace."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import ToolFailedError
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from apexbridge.tools.builtin.edit import write_file
from apexbridge.tools.builtin.path_access import (
    ResolvedPath,
    open_parent,
    open_regular,
    resolve_path,
)
from apexbridge.tools.builtin.skills import SKILL_NAME
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool, arguments_schema

MAX_INPUT_BYTES = 32 * 1024 * 1024
_MAX_LISTED_FILES = 100


class ScriptArguments(Arguments):
    """Which script, with what."""

    skill: str = Field(validation_alias=SKILL_NAME, description="The skill's name.")
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
    save_to: str = Field(
        default="",
        description="A folder of the workspace for the files it makes; else they are lost.",
    )
    overwrite: list[str] = Field(
        default_factory=list[str],
        description="Files in that folder that may be replaced, by the names the script gives.",
    )


class SkillScriptTool(TypedTool[ScriptArguments]):
    """Runs a skill's script in the sandbox."""

    def __init__(
        self,
        execute: Callable[[ScriptCall], Awaitable[ExecutionResult]],
        find: Callable[[str, str], Skill],
        is_isolated: Callable[[], bool],
    ) -> None:
        description = (
            "Run a script of a skill in a sandbox: no network, and of your files only those named "
            "in `files`. Gives what it printed; the files it makes are kept only with `save_to`."
        )
        schema = arguments_schema(ScriptArguments)
        super().__init__(
            ToolSpec(name="SkillScript", description=description, input_schema=schema),
            ScriptArguments,
        )
        self._execute = execute
        self._find = find
        self._is_isolated = is_isolated

    def asks(self, arguments: ScriptArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """In a sandbox a script can harm nothing; files are read for it, and written after it."""
        return tuple(self._requests(arguments, context))

    def _requests(
        self, arguments: ScriptArguments, context: ToolContext
    ) -> Iterator[PermissionRequest]:
        name = self._find(arguments.skill, context.session_id).name
        words = " ".join(filter(None, (name, arguments.script)))
        yield PermissionRequest(tool=self.spec.name, argument=words, harmless=self._is_isolated())
        for file in arguments.files:
            path = resolve_path(file, context, self.spec.name).path
            yield PermissionRequest(tool="Read", argument=str(path), path=path, harmless=True)
        if arguments.save_to:
            folder = resolve_path(arguments.save_to, context, self.spec.name, writes=True)
            summary = f"Put what a script of {arguments.skill} makes into {folder.shown}"
            yield _write_request(folder.path, summary)

    async def act(self, arguments: ScriptArguments, context: ToolContext) -> ToolResult:
        """Run it to its end."""
        inputs = await anyio.to_thread.run_sync(self._inputs, arguments.files, context)
        result = await self._execute(
            ScriptCall(
                skill=self._find(arguments.skill, context.session_id),
                script=arguments.script,
                arguments=tuple(arguments.arguments),
                inputs=inputs,
                stdin=arguments.stdin.encode("utf-8", "replace"),
            )
        )
        told = script_result(result)
        if not (arguments.save_to and result.produced):
            return told
        if result.outcome != "ok":
            return replace(told, text=f"{told.text}\n\nNone of its files was saved.")
        saved = await self._save(result, arguments, context)
        shown = "\n".join(f"- {place.shown}" for place in saved[:_MAX_LISTED_FILES])
        text = f"{told.text}\n\nSaved:\n{shown}"
        return replace(told, text=text, touched=tuple(place.path for place in saved))

    def _inputs(self, files: Sequence[str], context: ToolContext) -> dict[str, bytes]:
        inputs, room = dict[str, bytes](), MAX_INPUT_BYTES
        for name in files:
            place = resolve_path(name, context, self.spec.name)
            with open_parent(place) as parent, open_regular(place, parent) as file:
                data = file.read(room + 1)
            room -= len(data)
            if room < 0:
                raise ToolFailedError("the files are too large together", name=self.spec.name)
            is_here = place.path.is_relative_to(place.cwd)
            known_as = place.shown if is_here else place.path.name
            if known_as in inputs:
                detail = f"two of the files are called '{known_as}'"
                raise ToolFailedError(detail, name=self.spec.name)
            inputs[known_as] = data
        return inputs

    async def _save(
        self, result: ExecutionResult, arguments: ScriptArguments, context: ToolContext
    ) -> list[ResolvedPath]:
        """Write what was made, each file judged by its own path; nothing if one of them is there.

        Raises:
            ToolFailedError: If a file cannot be written, or is there and was not named.
            PermissionDeniedError: If a rule forbids one of them.
        """
        folder = resolve_path(arguments.save_to, context, self.spec.name, writes=True)
        places = {
            name: resolve_path(str(folder.path / name), context, self.spec.name, writes=True)
            for name in result.produced
        }
        requests = [replace(_write_request(p.path, ""), harmless=True) for p in places.values()]
        await context.allow(requests)  # the folder is agreed to; a rule may be about a file in it
        return await anyio.to_thread.run_sync(
            _write_all, places, result.produced, frozenset(arguments.overwrite)
        )


def _write_request(path: Path, summary: str) -> PermissionRequest:
    return PermissionRequest(tool="Write", argument=str(path), path=path, summary=summary)


def _write_all(
    places: Mapping[str, ResolvedPath], produced: Mapping[str, bytes], replaced: frozenset[str]
) -> list[ResolvedPath]:
    taken = [p for name, p in places.items() if name not in replaced and p.path.exists()]
    if taken:
        names = ", ".join(place.shown for place in taken[:_MAX_LISTED_FILES])
        raise taken[0].failed(f"nothing was saved, for there is already: {names}")
    for name, place in places.items():
        write_file(place, produced[name], may_replace=name in replaced)
    return list(places.values())


def script_result(result: ExecutionResult) -> ToolResult:
    """What a script did, as the model reads it."""
    parts = [truncate_text(result.stdout.decode("utf-8", "replace").rstrip())]
    errors = result.stderr.decode("utf-8", "replace").rstrip()
    if errors:
        parts.append(f"stderr:\n{truncate_text(errors, 8_000)}")
    if result.truncated:
        parts.append("(its output was cut)")
    if result.produced:
        made = [f"- {name}: {len(data)} bytes" for name, data in result.produced.items()]
        more = (
            [f"and {len(made) - _MAX_LISTED_FILES} more"] if len(made) > _MAX_LISTED_FILES else []
        )
        parts.append("\n".join(("Files it made:", *made[:_MAX_LISTED_FILES], *more)))
    if result.outcome != "ok":
        why = result.error or f"exit code {result.exit_code}"
        parts.append(f"It did not succeed ({result.outcome}): {why}")
    text = "\n\n".join(part for part in parts if part) or "(it printed nothing)"
    data = {"exit_code": result.exit_code, "outcome": result.outcome}
    return ToolResult(text=text, is_error=result.outcome != "ok", data=data)
