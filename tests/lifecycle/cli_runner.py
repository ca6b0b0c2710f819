"""Run CLI commands in one process: cli_runner.py PROJECT, with the commands as JSON on stdin."""

import json
import os
import sys

from tests.cli.in_process import call


def main(project: str) -> None:
    commands: list[list[str]] = json.load(sys.stdin)
    os.chdir(project)
    done = [call(*words, "--json") for words in commands]
    json.dump([(one.code, one.out, one.err) for one in done], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
