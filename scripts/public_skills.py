"""`make test-public`: install real public skills, build their dependencies, start their scripts.

The repositories are fetched by whoever runs it, with git, into `build/public`; nothing of them is
part of the project. Every script is started in the sandbox with `--help`. It counts as started
unless it was refused, or its interpreter or a module was missing. Scripts that no machine of this
kind can start (an interpreter that is not installed, a package that the index does not have, an
invalid file) are counted apart, by reason.

    python -m scripts.public_skills [--from FOLDER] [--per-repository N]
        [--scripts-only] [--no-build] [--json FILE]
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import anyio

from apexbridge.errors import ApexBridgeError
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills.model import Skill
from apexbridge.sources.repository import discover_skills
from scripts.script_starts import Start, script_files, start

PLACE = Path("build/public")
REPOSITORIES = (
    "anthropics/skills",
    "openai/skills",
    "obra/superpowers",
    "K-Dense-AI/claude-scientific-skills",
    "trailofbits/skills",
    "vercel-labs/agent-skills",
    "getsentry/skills",
    "daymade/claude-code-skills",
    "alirezarezvani/claude-skills",
    "wshobson/agents",
    "github/awesome-copilot",
    "EveryInc/compound-engineering-plugin",
    "Orchestra-Research/AI-research-SKILLs",
)
STARTED_SHARE = 0.9
KEPT_BYTES = 200 * 1024 * 1024
"""Size of an environment that is kept for the next skill of the same lock."""


@dataclass(slots=True, kw_only=True)
class SkillTrial:
    """A skill's way from the repository to the first run of its scripts."""

    repository: str
    where: str
    """Path in the repository."""
    path: Path | None = None
    refused: str = ""
    """Error code of the installation; empty if it was installed."""
    problems: list[str] = field(default_factory=list[str])
    dependencies: str = ""
    """Error of building the dependencies; empty if they were built or none are needed."""
    starts: list[Start] = field(default_factory=list[Start])


def fetch(repository: str, place: Path) -> Path:
    """Clone the repository's newest state, unless it is there already."""
    target = place / repository.replace("/", "+")
    if not target.is_dir():
        git = shutil.which("git") or "git"
        address = f"https://github.com/{repository}"
        subprocess.run([git, "clone", "--quiet", "--depth=1", address, str(target)], check=True)
    return target


def choose(repository: Path, limit: int, *, has_scripts: bool = False) -> list[SkillTrial]:
    """Choose skills of a repository, each once, in an order that favours no part of it.

    With `has_scripts` only those with scripts. Those that cannot be read are among them, with the
    error.
    """
    found = discover_skills(repository)
    trials = [
        SkillTrial(repository=repository.name, where=skill.where, path=skill.path)
        for skill in {skill.sha256: skill for skill in found.skills}.values()
        if not has_scripts or next(script_files(skill.path, 1), None)
    ]
    trials += [
        SkillTrial(repository=repository.name, where=problem.where, refused=problem.code)
        for problem in found.problems
        if problem.severity == "error"
    ]
    return sorted(trials, key=lambda trial: hashlib.sha256(trial.where.encode()).digest())[:limit]


async def try_skill(
    runtime: Runtime, trial: SkillTrial, scripts: int, *, builds: bool = True
) -> None:
    """Install a skill, build its dependencies, and start its scripts."""
    if trial.path is None:
        return
    try:
        installed = await runtime.manager.install(trial.path, renames="titles")
    except ApexBridgeError as error:
        trial.refused = error.code
        return
    trial.problems = [problem.code for problem in installed.problems]
    skill = installed.skill
    files = list(script_files(skill.root or Path(), scripts))
    if files and builds:
        trial.dependencies = await build_dependencies(runtime, skill)
    for script in files:
        trial.starts.append(await start(runtime, skill, script))
    discard_large_environments(runtime)


async def build_dependencies(runtime: Runtime, skill: Skill) -> str:
    """Build the skill's environment; returns why it could not be built."""
    try:
        await runtime.dependencies.build(skill)
    except ApexBridgeError as error:
        return f"{error.code}: {error.message[-160:]}"
    return ""


def discard_large_environments(runtime: Runtime) -> None:
    """Remove environments that a disk could not hold for hundreds of skills."""
    store = runtime.dependencies.store
    for found in store.all():
        if found.size > KEPT_BYTES:
            store.remove(found.key)


def report(trials: Sequence[SkillTrial]) -> bool:
    """Print the figures; returns whether enough scripts started."""
    repositories = {trial.repository for trial in trials}
    installed = [trial for trial in trials if not trial.refused]
    print(f"{len(trials)} skills of {len(repositories)} repositories; {len(installed)} installed")
    for code, count in Counter(t.refused for t in trials if t.refused).most_common():
        print(f"  refused: {count} {code}")
    print("problems:", dict(Counter(code for t in installed for code in t.problems).most_common()))
    starts = [start for trial in installed for start in trial.starts]
    outcomes = Counter(start.outcome for start in starts)
    possible = outcomes["started"] + outcomes["failed"]
    share = outcomes["started"] / possible if possible else 0.0
    print(
        f"{len(starts)} scripts: {dict(outcomes)}; {share:.1%} of those that can start here started"
    )
    for outcome in ("failed", "unavailable"):
        reasons = Counter(start.reason for start in starts if start.outcome == outcome)
        for reason, count in reasons.most_common(40):
            print(f"  {outcome}: {count} {reason}")
    for error, count in Counter(t.dependencies for t in installed if t.dependencies).most_common(
        40
    ):
        print(f"  dependencies: {count} {error}")
    return share >= STARTED_SHARE


async def run(config: Config, trials: Sequence[SkillTrial], options: argparse.Namespace) -> None:
    """Try all skills with one runtime; what is known is written after each."""
    async with Runtime.open(config) as runtime:
        for number, trial in enumerate(trials, 1):
            await try_skill(runtime, trial, options.per_skill, builds=options.build)
            if number % 25 == 0:
                print(f"{number} of {len(trials)}", file=sys.stderr, flush=True)
            if options.json:
                tried = [asdict(trial) for trial in trials[:number]]
                options.json.write_text(json.dumps(tried, indent=1, default=str), "utf-8")


def main() -> None:
    """Parse the arguments, fetch, try and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--from", dest="place", type=Path, help="a folder of clones: nothing is fetched"
    )
    parser.add_argument("--per-repository", type=int, default=40)
    parser.add_argument("--per-skill", type=int, default=4, help="scripts started of each skill")
    parser.add_argument("--scripts-only", action="store_true", help="only skills with scripts")
    parser.add_argument("--no-build", dest="build", action="store_false", help="build nothing")
    parser.add_argument("--max-mib", type=int, default=1_500, help="disk limit of an environment")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.place:
        repositories = [path for path in sorted(options.place.iterdir()) if path.is_dir()]
    else:
        repositories = [fetch(repository, PLACE) for repository in REPOSITORIES]
    trials = [
        trial
        for repository in repositories
        for trial in choose(repository, options.per_repository, has_scripts=options.scripts_only)
    ]
    with tempfile.TemporaryDirectory() as home:
        limit = {"APEXBRIDGE_DEPENDENCIES__MAX_MIB": str(options.max_mib)}
        config = load(project=Path(home), environment={**os.environ, **limit, "HOME": home})
        anyio.run(run, config, trials, options)
    raise SystemExit(0 if report(trials) else 1)


if __name__ == "__main__":
    main()
