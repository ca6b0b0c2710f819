"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON envelope on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Name = Annotated[str, typer.Argument(help="The skill's name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, without doing it.")
]
Lock = Annotated[
    Path | None,
    typer.Option("--lock", metavar="PATH", help="The lock file [apexbridge.lock of the project]."),
]
NoLock = Annotated[bool, typer.Option("--no-lock", help="Leave the lock file as it is.")]
AllowFindings = Annotated[
    bool, typer.Option("--allow-findings", help="Install despite findings of the security scan.")
]
AddDir = Annotated[
    list[Path] | None,
    typer.Option(
        "--add-dir",
        metavar="DIR",
        exists=True,
        file_okay=False,
        resolve_path=True,
        help="Another project whose skills are loaded; repeatable [skills.additional_dirs].",
    ),
]
