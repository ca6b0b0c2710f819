"""Options of the commands of chat, server, search, evaluation and diagnostics."""

from pathlib import Path
from typing import Annotated

import typer

from apexbridge.cli.handlers import add_group, handled_in
from apexbridge.cli.options import AddDir, DryRun, Name, Yes

app = typer.Typer()


@app.command()
@handled_in("chat")
def chat(
    text: Annotated[str, typer.Argument(help="The question [start a conversation].")] = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Continue this session.")] = "",
    model: Annotated[str, typer.Option(help="Use another model than the configured one.")] = "",
    skill: Annotated[list[str] | None, typer.Option(help="A skill to use; repeatable.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="Attach a file or folder; repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Copy the files that scripts create into a folder."),
    ] = None,
    add_dir: AddDir = None,
) -> None:
    """Ask the model, which calls tools and skills until it has the answer."""


@app.command()
@handled_in("audit")
def explain(
    turn: Annotated[str, typer.Argument(help="The turn's id, or its prefix [the last].")] = "",
) -> None:
    """Trace a chat turn: skills found, listed and refused, tool calls, tokens, times."""


@app.command()
@handled_in("audit")
def runs(
    run: Annotated[str, typer.Argument(help="The run's id [list the latest].")] = "",
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="Number of runs, latest first.")
    ] = 20,
) -> None:
    """List the latest script runs, or show one with the end of its output."""


@app.command()
@handled_in("mcp", has_json=False)
def mcp() -> None:
    """Serve skills to an MCP client over stdio."""


@app.command()
@handled_in("serve", overrides="server")
def serve(
    host: Annotated[str, typer.Option(help="The address to bind [server.host].")] = "",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; 0 for any free one [server.port]."),
    ] = None,
    add_dir: AddDir = None,
) -> None:
    """Serve chat, skills, MCP and the console over HTTP."""


deps_app = add_group(app, "deps", "Show, lock, build and remove the packages that skills need.")


@deps_app.command("show")
@handled_in("deps")
def deps_show(
    name: Annotated[str, typer.Argument(help="The skill's name [list all environments].")] = "",
) -> None:
    """Show the packages that a skill needs, where it says so, and whether they are there."""


@deps_app.command("lock")
@handled_in("deps")
def deps_lock(
    name: Name,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Resolve to newer versions.")] = False,
) -> None:
    """Resolve the packages of a skill to exact versions with hashes, and print them."""


@deps_app.command("build")
@handled_in("deps")
def deps_build(
    name: Name,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Resolve to newer versions.")] = False,
    yes: Yes = False,
) -> None:
    """Build the packages of a skill, after showing them, in a sandbox of their own."""


@deps_app.command("gc")
@handled_in("deps")
def deps_gc(dry_run: DryRun = False) -> None:
    """Remove environments that no skill uses, or that were changed after they were built."""


keys_app = add_group(app, "keys", "Create, list and revoke API keys of the server.")


@keys_app.command()
@handled_in("keys")
def create(
    name: Annotated[str, typer.Argument(help="A label for the key.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="Permission: chat, skills:read, skills:write, exec or admin; repeatable "
            "[chat and skills:read]."
        ),
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=0, max=36_500, help="Days until it expires [never].")
    ] = None,
) -> None:
    """Create an API key; it is shown only once."""


# The name of this command until 0.1; kept for scripts that use it.
keys_app.command("make", hidden=True, deprecated=True)(create)


@keys_app.command()
@handled_in("keys")
def ls() -> None:
    """List the API keys with name, state and scopes, without the secrets."""


@keys_app.command()
@handled_in("keys")
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, or its name.")],
) -> None:
    """Revoke an API key; a running server rejects it from the next request on."""


signing_app = add_group(
    app, "signing", "Sign skills, and verify their signatures (minisign, Ed25519)."
)


@signing_app.command()
@handled_in("signing")
def keygen(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The secret key to write, beside its .pub.")
    ] = Path("apexbridge.key"),
) -> None:
    """Make a signing key without a password; keep the secret file to yourself."""


@signing_app.command()
@handled_in("signing")
def sign(
    path: Annotated[Path, typer.Argument(help="An archive, or the folder of a skill.")],
    key: Annotated[Path, typer.Option("--key", "-k", help="The secret key.")],
    comment: Annotated[
        str, typer.Option("--comment", "-c", help="A text that is signed too [time and name].")
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Overwrite an existing signature.")
    ] = False,
) -> None:
    """Write PATH.minisig: of an archive its bytes, of a folder its content hash."""


@signing_app.command()
@handled_in("signing")
def verify(
    path: Annotated[Path, typer.Argument(help="An archive, or the folder of a skill.")],
    key: Annotated[
        str, typer.Option("--key", "-k", help="A public key or its file [install.trusted_keys].")
    ] = "",
) -> None:
    """Verify PATH.minisig; fail if it is wrong, missing, or of another key."""


index_app = add_group(app, "index", "Inspect and rebuild the search index.")


@app.command()
@handled_in("search")
def find(
    query: Annotated[str, typer.Argument(help="The task, in natural language.")],
    en: Annotated[str, typer.Option(metavar="TEXT", help="The query in English.")] = "",
    zh: Annotated[str, typer.Option(metavar="TEXT", help="The query in Chinese.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of skills to show.")] = 5,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the components of each score.")
    ] = False,
) -> None:
    """Search skills by meaning and keywords, in English or Chinese."""


@index_app.command("status")
@handled_in("search")
def index_status() -> None:
    """Compare the index with the skills by name and hash."""


@index_app.command("verify")
@handled_in("search")
def index_verify() -> None:
    """Read every index entry and compare it with the skills; exit 8 on a mismatch."""


@index_app.command("rebuild")
@handled_in("search")
def index_rebuild() -> None:
    """Rebuild every index entry."""


eval_app = add_group(app, "eval", "Evaluate retrieval quality; no language model is called.")


@eval_app.command("retrieval")
@handled_in("evals")
def eval_retrieval(
    corpus: Annotated[
        Path, typer.Option(help="Skills as JSON lines: id, name, description, body; .gz, .xz too.")
    ],
    queries: Annotated[
        Path, typer.Option(help="Queries as JSON lines: query, accept (a list of ids), lang.")
    ],
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="Rank cutoff for MRR; at least 10.")
    ] = 10,
) -> None:
    """Measure hit rate, recall and MRR on a corpus of skills."""


@eval_app.command("triggers")
@handled_in("evals")
def eval_triggers(
    skills: Annotated[list[str], typer.Argument(help="Names of skills, or their folders.")],
    limit: Annotated[int, typer.Option(min=1, max=50, help="Rank that counts as triggered.")] = 5,
) -> None:
    """Check skills against their evals/eval_queries.json; exit 8 if a query fails."""


@eval_app.command("coexistence")
@handled_in("evals")
def eval_coexistence() -> None:
    """Find skills that outrank others on their own queries, and near duplicates."""


@eval_app.command("preview")
@handled_in("evals")
def eval_preview(
    skill: Name,
    description: Annotated[str, typer.Option(metavar="TEXT", help="The description to try.")],
) -> None:
    """Preview how another description changes the ranks; nothing is saved."""


@app.command()
@handled_in("doctor")
def doctor(
    skill: Annotated[
        str, typer.Argument(help="Only the commands and packages that this skill needs [all].")
    ] = "",
    fsck: Annotated[
        bool, typer.Option("--fsck", help="Check the data folder; nothing is changed.")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Rebuild derived data, then check the data folder.")
    ] = False,
    short: Annotated[bool, typer.Option("--short", help="Only warnings and failures.")] = False,
) -> None:
    """Run diagnostics: sandbox, data folder, sources, settings."""


@app.command()
@handled_in("settings")
def config(key: Annotated[str, typer.Argument(help="The name of one setting [all].")] = "") -> None:
    """Show each setting and where its value comes from."""


secrets_app = add_group(app, "secrets", "Give secrets to skills, which never see their values.")


@secrets_app.command("set")
@handled_in("secrets")
def set_secret(
    name: Annotated[str, typer.Argument(help="Name of the environment variable.")],
    file: Annotated[
        Path | None, typer.Option(help="Read the value from a file [a hidden prompt, or stdin].")
    ] = None,
    rest: Annotated[
        list[str] | None,
        typer.Argument(metavar="", help="Refused: others would see a value that is an argument."),
    ] = None,
) -> None:
    """Set a value, from a hidden prompt, stdin or a file; never from an argument."""


@secrets_app.command("ls")
@handled_in("secrets")
def list_secrets() -> None:
    """List the secrets and their grants, without the values."""


@secrets_app.command("rm")
@handled_in("secrets")
def remove_secret(
    name: Annotated[str, typer.Argument(help="Name of the secret.")],
) -> None:
    """Remove a secret and its grants."""


@secrets_app.command("grant")
@handled_in("secrets")
def grant_secrets(
    skill: Name,
    secret: Annotated[
        list[str] | None, typer.Option(help="A declared secret; repeatable [all].")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host it may be sent to; repeatable [as the skill declares]."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Grant a skill, as it is now, the secrets it declares; missing values are asked for."""


@secrets_app.command("revoke")
@handled_in("secrets")
def revoke_secrets(
    skill: Name,
    secret: Annotated[list[str] | None, typer.Option(help="A secret; repeatable [all].")] = None,
) -> None:
    """Revoke the grants of a skill."""
