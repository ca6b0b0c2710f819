"""What a new skill starts from, in English and Chinese."""

from apexbridge import locales
from apexbridge.locales import Language
from apexbridge.skills.editor import quote
from apexbridge.skills.validator import PLACEHOLDER

_SCRIPTS = {
    "python": (
        "scripts/main.py",
        '#!/usr/bin/env python3\n"""{title}."""\n\nimport sys\n\n\n'
        "def main(arguments: list[str]) -> int:\n"
        '    """Print what was asked for."""\n'
        '    print("{name}:", *arguments)\n    return 0\n\n\n'
        'if __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))\n',
    ),
    "bash": (
        "scripts/main.sh",
        '#!/usr/bin/env bash\n# {title}.\nset -euo pipefail\n\necho "{name}: $*"\n',
    ),
    "node": (
        "scripts/main.mjs",
        '#!/usr/bin/env node\n// {title}.\n\nconsole.log("{name}:", ...process.argv.slice(2));\n',
    ),
}


def files(name: str, script: str, language: Language) -> dict[str, tuple[str, int]]:
    """The scaffold's files, each with its text and mode."""
    title = name.replace("-", " ").capitalize()
    made = dict[str, tuple[str, int]]()
    run = ""
    if script in _SCRIPTS:
        path, source = _SCRIPTS[script]
        made[path] = (source.format(title=title, name=name), 0o755)
        run = locales.text("scaffold", "run_step", language, path=path)
    description = locales.text("scaffold", "description", language, placeholder=PLACEHOLDER)
    fields = {"name": name, "title": title, "description": quote(description), "script": run}
    text = locales.text("scaffold", "skill_md", language, **fields)
    return {"SKILL.md": (text, 0o644), **made}
