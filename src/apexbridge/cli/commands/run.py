"""`run`: execute a skill's script in the sandbox and stream its output."""

import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread
import typer

from apexbridge.activation.input_files import InputFiles, format_skipped
from apexbridge.activation.scripts import ScriptCall
from apexbridge.cli.commands.deps import print_needs
from apexbridge.cli.created_files import save_files
from apexbridge.cli.output import ExitCode, Output, ScriptOutput, sanitize
from apexbridge.errors import ApexBridgeError, PermissionDeniedError
from apexbridge.runtime import Runtime
from apexbridge.sandbox.base import ExecutionResult


def run(
    out: Output,
    *,
    name: str,
    words: list[str] | None,
    file: list[Path] | None,
    output: Path | None,
    timeout: float | None,
    network: list[str] | None,
    unsafe: bool,
) -> None:
    """Run the script and stream its output, unless `--json` or `--quiet` is given."""
    script, arguments = _split_arguments(words or [])
    options = RunOptions(
        name=name,
        script=script,
        arguments=tuple(arguments),
        inputs=tuple(file or ()),
        timeout=timeout,
        hosts=tuple(network or ()),
        is_unsafe=unsafe,
    )
    result = anyio.run(_run_until_signal, out, options)
    saved = _save(out, result, output) if output is not None else []

    def render() -> None:
        if result.error:
            out.note(out.text("run_error", error=result.error, isolation=result.isolation))
        if result.cause is not None:
            out.note(sanitize(result.explain(out.language)))
        for path in saved:
            out.note(out.text("created", path=path))
        if result.not_taken:
            reasons = ", ".join(f"{name} ({why})" for name, why in result.not_taken.items())
            out.note(out.text("outputs_rejected", reasons=reasons))
        if result.produced and output is None:
            names = ", ".join(sorted(map(sanitize, result.produced)))
            key = "outputs_kept" if result.folder else "outputs_not_saved"
            out.note(out.text(key, names=names, folder=result.folder))

    out.finish(_as_json(result), render, _exit(result))


def _save(out: Output, result: ExecutionResult, folder: Path) -> list[Path]:
    try:
        return save_files(result.produced, folder)
    except ApexBridgeError:
        if result.folder is not None:  # nothing is lost
            names = ", ".join(sorted(map(sanitize, result.produced)))
            out.note(out.text("outputs_kept", names=names, folder=result.folder))
        raise


def _split_arguments(words: list[str]) -> tuple[str, list[str]]:
    """Split at `--`: the script before it, the script's arguments behind it."""
    mark = words.index("--") if "--" in words else len(words)
    if mark > 1:
        raise typer.BadParameter("put '--' before the script's arguments")
    return (words[0] if mark else ""), words[mark + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of `run`."""

    name: str
    script: str
    arguments: tuple[str, ...]
    inputs: tuple[Path, ...]
    timeout: float | None
    hosts: tuple[str, ...]
    is_unsafe: bool


async def _run_until_signal(out: Output, options: RunOptions) -> ExecutionResult:
    """Run the script; SIGTERM terminates it and cleans up before this process exits."""
    results, failures = list[ExecutionResult](), list[Exception]()
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    tasks.cancel_scope.cancel()

        tasks.start_soon(stop)
        try:
            results.append(await _execute(out, options))
        except Exception as error:  # noqa: BLE001  # raised below, where no group wraps it
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not results:
        raise SystemExit(128 + signal.SIGTERM)
    return results[0]


async def _execute(out: Output, options: RunOptions) -> ExecutionResult:
    async with Runtime.open(out.config) as runtime:
        await _offer_build(out, runtime, options.name)
        limits = runtime.script_runner.limits()
        if options.timeout is not None:
            limits = replace(limits, wall_seconds=options.timeout)
        inputs = await anyio.to_thread.run_sync(InputFiles.from_disk, options.inputs)
        if inputs.skipped:
            out.note(out.text("inputs_skipped", reasons=format_skipped(inputs.skipped)))
        shown = ScriptOutput()
        call = ScriptCall(
            skill=runtime.catalog.get(options.name),
            script=options.script,
            arguments=options.arguments,
            inputs=inputs.files,
            hosts=options.hosts,
            limits=limits,
            on_output=None if out.as_json or out.is_quiet else shown.write,
        )
        try:
            return await runtime.script_runner.execute(call, is_unsafe=options.is_unsafe)
        except PermissionError as error:
            raise PermissionDeniedError(f"{error.strerror}: {error.filename}") from None
        finally:
            shown.close()


async def _offer_build(out: Output, runtime: Runtime, name: str) -> None:
    """Ask a person at a terminal whether missing packages may be built; anybody else is not."""
    if out.as_json or not sys.stdin.isatty():
        return
    skill = runtime.catalog.get(name)
    found = await runtime.dependencies.show(skill)
    if not found.missing or not runtime.dependencies.is_allowed(agreed=True):
        return
    print_needs(out, found.needs)
    if out.confirm("deps_ask", name=skill.name):
        await runtime.dependencies.build(skill)


def _as_json(result: ExecutionResult) -> dict[str, object]:
    return {
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr.decode("utf-8", "replace"),
        "duration": round(result.duration, 3),
        "error": result.error,
        "reason": result.explain(),
        "timed_out": result.timed_out,
        "truncated": result.truncated,
        "isolation": result.isolation,
        "produced": {name: len(data) for name, data in result.produced.items()},
        "not_taken": dict(result.not_taken),
        "run": result.run_id,
        "folder": str(result.folder) if result.folder else None,
    }


def _exit(result: ExecutionResult) -> ExitCode:
    if result.outcome == "ok":
        return ExitCode.OK
    return ExitCode.TIMEOUT if result.timed_out else ExitCode.FAILURE
