"""Run commands in this process with Typer's test runner."""

import sys

from typer.testing import CliRunner

from tests.cli.conftest import CommandResult, commands, exit_code_of


def call(*arguments: str, **variables: str) -> CommandResult:
    """Run a command with the hash embedder; any exception fails the test."""
    words = ["--set", "index.embedder=hash", *arguments]
    with CliRunner().isolation(env=variables) as (out, err, _):
        code = exit_code_of(lambda: commands().main(args=words, prog_name="apexbridge"))
        sys.stdout.flush()
        sys.stderr.flush()
        told = [stream.getvalue().decode().replace("\r\n", "\n") for stream in (out, err)]
    return CommandResult(code, *told)
