"""The command line within this process: the same parser, without starting Python each time."""

import sys

from typer.testing import CliRunner

from tests.cli.conftest import Done, commands, end_of


def call(*arguments: str, **variables: str) -> Done:
    """Run a command with the embedder for tests; what would be a traceback ends the test."""
    words = ["--set", "index.embedder=hash", *arguments]
    with CliRunner().isolation(env=variables) as (out, err, _):
        code = end_of(lambda: commands().main(args=words, prog_name="apexbridge"))
        sys.stdout.flush()
        sys.stderr.flush()
        told = [stream.getvalue().decode().replace("\r\n", "\n") for stream in (out, err)]
    return Done(code, *told)
