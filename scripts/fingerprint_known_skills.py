"""Write the line fingerprints of well-known skills, by which modified copies are detected (AB075).

The originals are collections that people know and install from, at every version in the history of
their default branch; all but SkillsBench are chosen by how well known they are. `COLLECTIONS` lists
them. SkillsBench is read from a fork. Registries to which anybody uploads are excluded: their
content is not reviewed. A text of this project is included too, for the tests to copy.

    python -m scripts.fingerprint_known_skills FOLDER [--out FILE]

FOLDER holds one bare repository for each of them, OWNER+NAME/repo.
"""

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from apexbridge.scanner import known_skill_diff
from apexbridge.scanner.known_skill_diff import pack_fingerprints
from apexbridge.scanner.scan_input import SKILL_MD, ScannedFile, read_text_file

COLLECTIONS = (
    # vendors
    "anthropics/skills",
    "anthropics/claude-code",
    "anthropics/claude-plugins-official",
    "anthropics/financial-services-plugins",
    "anthropics/knowledge-work-plugins",
    "openai/skills",
    "google/skills",
    "google-gemini/gemini-skills",
    "googleworkspace/cli",
    "github/awesome-copilot",
    "dotnet/skills",
    "vercel-labs/agent-skills",
    "vercel-labs/skills",
    "supabase/agent-skills",
    "neondatabase/agent-skills",
    "hashicorp/agent-skills",
    "stripe/ai",
    "expo/skills",
    "remotion-dev/skills",
    "callstackincubator/agent-skills",
    "getsentry/skills",
    "trailofbits/skills",
    "letta-ai/skills",
    "moltbot/moltbot",
    # collections
    "KaiserWhoLearns/skillsbench",
    "obra/superpowers",
    "ComposioHQ/awesome-claude-skills",
    "K-Dense-AI/claude-scientific-skills",
    "Orchestra-Research/AI-Research-SKILLs",
    "wshobson/agents",
    "alirezarezvani/claude-skills",
    "davila7/claude-code-templates",
    "sickn33/antigravity-awesome-skills",
    "affaan-m/everything-claude-code",
    "muratcankoylan/Agent-Skills-for-Context-Engineering",
    "coreyhaines31/marketingskills",
    "mrgoonie/claudekit-skills",
    "Jeffallan/claude-skills",
    "mattpocock/skills",
    "kepano/obsidian-skills",
)
ENDS = frozenset(
    {".md", ".mdx", ".markdown", ".txt", ".rst", ".adoc", ".py", ".sh", ".bash", ".zsh", ".js",
     ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".jsx", ".rb", ".pl", ".php", ".lua", ".ps1", ".bat",
     ".cmd", ".applescript", ".go", ".rs", ".c", ".cc", ".cpp", ".java", ".kt", ".swift", ".r",
     ".R", ".jl"}
)  # fmt: skip
NAMES = frozenset({"Makefile", "Dockerfile", "justfile", "package.json"})
MAX_BYTES = 500_000
SAMPLE = Path(__file__).parents[1] / "tests" / "scanner" / "well_known.md"
OUT = Path(known_skill_diff.__file__).with_name(known_skill_diff.FINGERPRINT_FILE)


def files_of(repository: Path) -> list[tuple[str, PurePosixPath]]:
    """Return every version of every document and script in folders that have had a SKILL.md."""
    listing = _git(repository, "rev-list", "--objects", "--missing=allow-any", "HEAD")
    listing += _git(repository, "ls-tree", "-r", "--format=%(objectname) %(path)", "HEAD")
    rows = [line.split(" ", 1) for line in listing.decode("utf-8", "replace").splitlines()]
    paths = {(row[0], PurePosixPath(row[1])) for row in rows if len(row) > 1 and row[1]}
    folders = {path.parent for _, path in paths if path.name == SKILL_MD} - {PurePosixPath()}
    return sorted(
        (name, path)
        for name, path in paths
        if path.name == SKILL_MD
        or ((path.suffix in ENDS or path.name in NAMES) and not folders.isdisjoint(path.parents))
    )


def _git(repository: Path, *arguments: str) -> bytes:
    command = ("git", "-C", str(repository), *arguments)
    return subprocess.run(command, check=True, capture_output=True).stdout


def contents(repository: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Return paths and contents of those files; missing objects are skipped."""
    files = files_of(repository)
    command = ("git", "-C", str(repository), "cat-file", "--batch")
    requested = "".join(f"{name}\n" for name, _ in files).encode()
    answer = subprocess.run(command, check=True, capture_output=True, input=requested).stdout
    at = 0
    for _, path in files:
        end = answer.index(b"\n", at)
        head, at = answer[at:end].split(), end + 1
        if head[-1] == b"missing":
            continue
        size = int(head[2])
        if head[1] == b"blob" and size <= MAX_BYTES:
            yield path, answer[at : at + size]
        at += size + 1


def fingerprints_of(name: str, data: bytes) -> set[int]:
    """Return the line fingerprints of a document."""
    data += b"\n"
    file = read_text_file(ScannedFile(path=PurePosixPath(name), data=data), data)
    if file is None or file.role_of(1) == "data":
        return set()
    return {fingerprint for _, fingerprint in known_skill_diff.file_fingerprints(file)}


def main() -> None:
    """Read every collection and write the fingerprint file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    found = fingerprints_of(SKILL_MD, SAMPLE.read_bytes())
    for collection in COLLECTIONS:
        before = len(found)
        for path, data in contents(arguments.folder / collection.replace("/", "+") / "repo"):
            found |= fingerprints_of(path.name, data)
        print(f"{collection}: {len(found) - before} new lines", flush=True)
    arguments.out.write_bytes(pack_fingerprints(found))
    print(f"{len(found)} lines, {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
