"""The flags that every command has."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON envelope on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
