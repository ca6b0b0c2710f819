"""The command line within this process: the same parser, without starting Python each time."""

from typer.testing import CliRunner

from apexbridge.cli.main import app
from tests.cli.conftest import Done


def call(*arguments: str, **variables: str) -> Done:
    """Run a command with the embedder for tests."""
    words = ["--set", "index.embedder=hash", *arguments]
    result = CliRunner().invoke(app, words, env=variables)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
