"""Lazily imported commands: `--help` is answered from a table, without importing the runtime."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

SKILL_COMMANDS: dict[str, str] = {
    "init": "Create a new skill from a template.",
    "validate": "Validate skills and report every problem.",
    "pack": "Pack a skill into a zip, reproducibly: equal folders give equal bytes.",
    "run": "Run a skill's script in the sandbox: "
    "apexbridge run [OPTIONS] SKILL [SCRIPT] [-- ARGS].",
    "ls": "List the available skills.",
    "show": "Show one skill: fields, files, hash, problems.",
    "sources": "List the sources of skills by precedence, with their state.",
    "trust": "Approve the scripts, hooks and tool grants of skills, "
    "also for the model to use unasked.",
    "add": "Install skills from a repository, URL, archive or folder, "
    "after showing their contents.",
    "sync": "Install exactly the skills of the lock file; other content than is locked is refused.",
    "outdated": "List the installed skills that their sources have in a newer state.",
    "migrate": "Install skills from other layouts; the originals are not changed.",
    "rm": "Uninstall a skill; 'undo' restores it for some days.",
    "undo": "Restore the last uninstalled skill of this name.",
    "enable": "Enable a disabled skill.",
    "disable": "Disable a skill: it is not listed, found or run.",
    "export": "Export a skill as an installable zip; no file is overwritten.",
    "scan": "Scan skills for prompt injection, exfiltration and malicious code. "
    "Nothing is executed.",
    "edit-description": "Change the description of an installed skill, and no other byte.",
    "audit": "Show and verify the audit log of all changes.",
    "update": "Update installed skills after showing the diff; the old versions are kept.",
    "versions": "List the versions of an installed skill.",
    "rollback": "Roll a skill back to an earlier version.",
    "pin": "Pin a skill to a version: no update, edit or rollback.",
    "diff": "Show the diff between two versions of a skill.",
}
"""Help lines of the commands in `skill_commands`."""

SERVICE_COMMANDS: dict[str, str] = {
    "chat": "Ask the model, which calls tools and skills until it has the answer.",
    "explain": "Trace a chat turn: skills found, listed and refused, tool calls, tokens, times.",
    "runs": "List the latest script runs, or show one with the end of its output.",
    "mcp": "Serve skills to an MCP client over stdio.",
    "serve": "Serve chat, skills, MCP and the console over HTTP.",
    "deps": "Show, lock, build and remove the packages that skills need.",
    "keys": "Create, list and revoke API keys of the server.",
    "signing": "Sign skills, and verify their signatures (minisign, Ed25519).",
    "find": "Search skills by meaning and keywords, in English or Chinese.",
    "secrets": "Give secrets to skills, which never see their values.",
    "index": "Inspect and rebuild the search index.",
    "eval": "Evaluate retrieval quality; no language model is called.",
    "doctor": "Run diagnostics: sandbox, data folder, sources, settings.",
    "config": "Show each setting and where its value comes from.",
}
"""Help lines of the commands in `service_commands`."""

COMMANDS = {**SKILL_COMMANDS, **SERVICE_COMMANDS}
"""Help line by command (a test compares the docstring)."""

DEPRECATED_OPTIONS: dict[str, dict[str, str]] = {
    "add": {"--despite-findings": "--allow-findings"},
    "migrate": {"--despite-findings": "--allow-findings"},
    "update": {"--despite-findings": "--allow-findings", "--allow-older": "--allow-downgrade"},
    "edit-description": {"--seen": "--if-match"},
}
"""By command: old option names that are still accepted, and their new names."""


class _LazyCommands(MutableMapping[str, Any]):
    """Commands by name, each imported on first access."""

    def __init__(self) -> None:
        self._loaded = dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name in COMMANDS and name not in self._loaded:
            kind = "skill" if name in SKILL_COMMANDS else "service"
            app: typer.Typer = import_module(f"apexbridge.cli.{kind}_commands").app
            # Only this command is built: all those of the module take ten times as long.
            one = typer.Typer(rich_markup_mode=None)
            one.registered_commands = [
                command
                for command in app.registered_commands
                if name in {command.name, getattr(command.callback, "__name__", "")}
            ]
            one.registered_groups = [g for g in app.registered_groups if g.name == name]
            self._loaded |= typer.main.get_group(one).commands
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """Command group that imports a command's module when the command is invoked."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Command names, without importing the commands."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the command table of `--help`, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command; deprecated option names become the new ones, with a warning."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, replace_deprecated(name or "", rest)


def replace_deprecated(command: str, arguments: list[str]) -> list[str]:
    """Replace deprecated option names of a command; everything behind `--` is left alone.

    >>> replace_deprecated("ls", ["--all"])
    ['--all']
    """
    renamed = DEPRECATED_OPTIONS.get(command, {})
    end = arguments.index("--") if "--" in arguments else len(arguments)
    replaced = list[str]()
    for argument in arguments[:end]:
        option, sign, value = argument.partition("=")
        if option in renamed:
            new = renamed[option]
            typer.echo(f"Warning: option {option} is deprecated, use {new}", err=True)
            replaced.append(f"{new}{sign}{value}")
        else:
            replaced.append(argument)
    return replaced + arguments[end:]
