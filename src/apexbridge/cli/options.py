"""The flags and arguments that many commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON envelope on stdout.")]
Name = Annotated[str, typer.Argument(help="The skill's name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
