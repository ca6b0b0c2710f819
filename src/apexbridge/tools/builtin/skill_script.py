"""SkillScript tool: run a skill's script in the sandbox and save its output files."""

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
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin.edit import write_file
from apexbridge.tools.builtin.path_access import (
    ResolvedPath,
    open_parent,
    open_regular,
    resolve_path,
)
from apexbridge.tools.builtin.skills import SKILL_NAME
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

MAX_INPUT_BYTES = 32 * 1024 * 1024
_MAX_LISTED_FILES = 100


class ScriptArguments(Arguments):
    """Arguments of SkillScript."""

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
        description="A folder of the workspace for the files it create; else they are lost.",
    )
    overwrite: list[str] = Field(
        default_factory=list[str],
        description="Files in that folder that may be replaced, by the names the script gives.",
    )


class SkillScriptTool(TypedTool[ScriptArguments]):
    """Run a skill's script in the sandbox."""

    def __init__(
        self,
        execute: Callable[[ScriptCall], Awaitable[ExecutionResult]],
        find: Callable[[str, str], Skill],
        is_isolated: Callable[[], bool],
    ) -> None:
        description = (
            "Run a script of a skill in a sandbox: no network, and of your files only those named "
            "in `files`. Gives what it printed; the files it create are kept only with `save_to`."
        )
        super().__init__("SkillScript", description, ScriptArguments)
        self._execute = execute
        self._find = find
        self._is_isolated = is_isolated

    def required_permissions(
        self, arguments: ScriptArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request the script (harmless in a sandbox), each input file, and the output directory."""
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
            summary = f"Put what a script of {arguments.skill} create into {folder.display}"
            yield _write_request(folder.path, summary)

    async def run(self, arguments: ScriptArguments, context: ToolContext) -> ToolResult:
        """Run the script to its end or its limits."""
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
        note = script_result(result)
        if not (arguments.save_to and result.produced):
            return note
        if result.outcome != "ok":
            return replace(note, text=f"{note.text}\n\nNone of its files was saved.")
        saved = await self._save(result, arguments, context)
        shown = "\n".join(f"- {target.display}" for target in saved[:_MAX_LISTED_FILES])
        text = f"{note.text}\n\nSaved:\n{shown}"
        return replace(note, text=text, touched=tuple(target.path for target in saved))

    def _inputs(self, files: Sequence[str], context: ToolContext) -> dict[str, bytes]:
        inputs, budget = dict[str, bytes](), MAX_INPUT_BYTES
        for name in files:
            target = resolve_path(name, context, self.spec.name)
            with open_parent(target) as parent, open_regular(target, parent) as file:
                data = file.read(budget + 1)
            budget -= len(data)
            if budget < 0:
                raise ToolFailedError("the files are too large together", name=self.spec.name)
            is_here = target.path.is_relative_to(target.cwd)
            known_as = target.display if is_here else target.path.name
            if known_as in inputs:
                detail = f"two of the files are called '{known_as}'"
                raise ToolFailedError(detail, name=self.spec.name)
            inputs[known_as] = data
        return inputs

    async def _save(
        self, result: ExecutionResult, arguments: ScriptArguments, context: ToolContext
    ) -> list[ResolvedPath]:
        """Save the output files, each checked by its own path; all of them or none.

        Raises:
            ToolFailedError: If a file cannot be written, or is there and was not named.
            PermissionDeniedError: If a rule is_forbidden one of them.
        """
        folder = resolve_path(arguments.save_to, context, self.spec.name, writes=True)
        targets = {
            name: resolve_path(str(folder.path / name), context, self.spec.name, writes=True)
            for name in result.produced
        }
        # The script chose these names: each path is resolved and checked by itself.
        requests = [replace(_write_request(p.path, ""), harmless=True) for p in targets.values()]
        await context.allow(requests)  # the folder is agreed to; a rule may be about a file in it
        return await anyio.to_thread.run_sync(
            _write_all, targets, result.produced, frozenset(arguments.overwrite)
        )


def _write_request(path: Path, summary: str) -> PermissionRequest:
    return PermissionRequest(tool="Write", argument=str(path), path=path, summary=summary)


def _write_all(
    targets: Mapping[str, ResolvedPath], produced: Mapping[str, bytes], replaced: frozenset[str]
) -> list[ResolvedPath]:
    taken = [p for name, p in targets.items() if name not in replaced and p.path.exists()]
    if taken:
        names = ", ".join(target.display for target in taken[:_MAX_LISTED_FILES])
        raise taken[0].error(f"nothing was saved, for there is already: {names}")
    for name, target in targets.items():
        write_file(target, produced[name], may_replace=name in replaced)
    return list(targets.values())


def script_result(result: ExecutionResult) -> ToolResult:
    """Format the result of a script for the model."""
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
        parts.append(result.explain())
    text = "\n\n".join(part for part in parts if part) or "(it printed nothing)"
    data = {"exit_code": result.exit_code, "outcome": result.outcome}
    return ToolResult(text=text, is_error=result.outcome != "ok", data=data)
