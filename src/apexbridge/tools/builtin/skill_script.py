"""SkillScript tool: run a skill's script in the sandbox and save its output files."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.activation.input_files import InputFiles, format_skipped
from apexbridge.activation.scripts import ScriptCall
from apexbridge.events import FilesCreated, FilesSkipped
from apexbridge.paths import printable_path
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.regular_files import open_regular
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills.model import Skill
from apexbridge.tools.base import Grants, ToolContext, ToolResult
from apexbridge.tools.builtin.edit import write_file
from apexbridge.tools.builtin.glob import (
    DEFAULT_TIMEOUT,
    FileWalk,
    ReadFilter,
    allow_all,
)
from apexbridge.tools.builtin.path_access import (
    ResolvedPath,
    is_directory,
    open_directory,
    open_parent,
    open_target,
    resolve_path,
)
from apexbridge.tools.builtin.skills import SKILL_NAME
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

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
        description="Files and folders that the script needs; it finds them by these names.",
    )
    stdin: str = Field(default="", description="What it reads from standard input.")
    save_to: str = Field(
        default="",
        description="A folder of the workspace to put the files it creates in.",
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
        may_read: ReadFilter = allow_all,
    ) -> None:
        description = (
            "Run a script of a skill in a sandbox: no network, and of your files only those named "
            "in `files`. Gives what it printed; the files it creates are given to the user."
        )
        super().__init__("SkillScript", description, ScriptArguments)
        self._execute = execute
        self._find = find
        self._is_isolated = is_isolated
        self._may_read = may_read

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
            summary = f"Put what a script of {arguments.skill} creates into {folder.display}"
            yield _write_request(folder.path, summary)

    async def run(self, arguments: ScriptArguments, context: ToolContext) -> ToolResult:
        """Run the script to its end or its limits."""
        inputs = await anyio.to_thread.run_sync(self._inputs, arguments.files, context)
        skill = self._find(arguments.skill, context.session_id)
        result = await self._execute(
            ScriptCall(
                skill=skill,
                script=arguments.script,
                arguments=tuple(arguments.arguments),
                inputs=inputs.files,
                stdin=arguments.stdin.encode("utf-8", "replace"),
                owner=context.session_id,
            )
        )
        note = script_result(result)
        if inputs.skipped:
            note = replace(note, text=f"{note.text}\n\n{_skipped_note(inputs)}")
        if inputs.skipped or result.not_taken:
            left = {printable_path(name): why for name, why in result.not_taken.items()}
            left |= {printable_path(name): why for name, why in inputs.skipped.items()}
            session, call = context.session_id, context.call_id
            context.emit(FilesSkipped(session_id=session, call_id=call, files=left))
        if result.folder is not None:
            context.emit(_files_created(skill.name, result, result.folder, context))
        if not (arguments.save_to and result.produced):
            return note
        if result.outcome != "ok":
            return replace(note, text=f"{note.text}\n\nNone of its files was saved.")
        saved = await self._save(result, arguments, context)
        shown = "\n".join(f"- {target.display}" for target in saved[:_MAX_LISTED_FILES])
        text = f"{note.text}\n\nSaved:\n{shown}"
        return replace(note, text=text, touched=tuple(target.path for target in saved))

    def _inputs(self, files: Sequence[str], context: ToolContext) -> InputFiles:
        inputs = InputFiles()
        for name in files:
            target = resolve_path(name, context, self.spec.name)
            is_here = target.path.is_relative_to(target.cwd)
            known_as = target.display if is_here else target.path.name
            if is_directory(target):
                self._add_folder(inputs, target, known_as, context)
                continue
            with open_parent(target) as parent, open_target(target, parent) as file:
                inputs.add(known_as, file.read(inputs.budget + 1))
        return inputs

    def _add_folder(
        self, inputs: InputFiles, target: ResolvedPath, known_as: str, context: ToolContext
    ) -> None:
        """Add the files of a folder, without those that .gitignore names or a rule denies."""
        walk = FileWalk(deadline=time.monotonic() + DEFAULT_TIMEOUT)
        with open_directory(target) as top:
            for path, parent, name in walk.files(top):
                # The workspace itself is the script's working directory.
                known = path if target.path == target.cwd else f"{known_as}/{path}"
                if not self._may_read(target.path / path, context):
                    inputs.skipped[known] = "a rule denies it"
                    continue
                try:
                    with open_regular(name, dir_fd=parent) as file:
                        inputs.add_found(known, partial(file.read, inputs.budget + 1))
                except OSError as error:
                    inputs.skipped[known] = str(getattr(error, "strerror", None) or error)
        if walk.stopped:
            raise target.error(f"the folder is too large: stopped {walk.stopped}")
        if walk.ignored:
            inputs.skipped[f"{known_as}/"] = f"{walk.ignored} that .gitignore names"

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


def _skipped_note(inputs: InputFiles) -> str:
    return f"Not given to it: {format_skipped(inputs.skipped)}."


def _files_created(
    skill: str, result: ExecutionResult, folder: Path, context: ToolContext
) -> FilesCreated:
    files = {printable_path(name): len(data) for name, data in result.produced.items()}
    return FilesCreated(
        session_id=context.session_id,
        call_id=context.call_id,
        skill=skill,
        run_id=result.run_id,
        folder=str(folder),
        files=files,
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
        parts.append(_list_outputs(result))
    if result.not_taken:
        parts.append(f"Files it made that were left out: {format_skipped(result.not_taken)}.")
    if result.outcome != "ok":
        why = result.error or f"exit code {result.exit_code}"
        parts.append(f"It did not succeed ({result.outcome}): {why}")
        parts.append(result.explain())
    text = "\n\n".join(part for part in parts if part) or "(it printed nothing)"
    data = {"exit_code": result.exit_code, "outcome": result.outcome}
    # Readable from now on, also as input of another script.
    grants = Grants(root=result.folder)
    return ToolResult(text=text, is_error=result.outcome != "ok", data=data, grants=grants)


def _list_outputs(result: ExecutionResult) -> str:
    kept = f", in {result.folder}" if result.folder else " (they are not kept)"
    made = [
        f"- {printable_path(name)}: {len(data)} bytes" for name, data in result.produced.items()
    ]
    count = len(made) - _MAX_LISTED_FILES
    more = [f"and {count} more"] if count > 0 else []
    return "\n".join((f"Files it made{kept}:", *made[:_MAX_LISTED_FILES], *more))
