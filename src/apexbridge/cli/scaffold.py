"""What a new skill starts from, in English and Chinese."""

from apexbridge.locales import Language
from apexbridge.skills.editor import quote
from apexbridge.skills.validator import PLACEHOLDER

_EN = """\
---
name: {name}
description: {description}
---

# {title}

## When to use it

- Name the requests this skill is for, in the words people use.
- Name the ones it is not for.

## Steps

1. Say the first thing to do, and how to tell that it worked.
2. Say what to do when it did not.{script}

## Result

Say what the answer must contain, with a short example.
"""

_ZH = """\
---
name: {name}
description: {description}
---

# {title}

## 何时使用

- 用用户会说的话，写出哪些请求应当使用本技能。
- 写出哪些请求不应当使用。

## 步骤

1. 写出第一步做什么，以及如何判断已经做好。
2. 写出没做好时怎么办。{script}

## 结果

写出答案必须包含什么，并给一个简短的例子。
"""

_RUN = {
    "en": "\n3. Run `{path}`: what must be exact belongs in a script, not in prose.",
    "zh": "\n3. 运行 `{path}`：必须精确的事写成脚本，而不是写成文字。",
}

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

_DESCRIPTION = {
    "en": f"{PLACEHOLDER}, and when to use it: the words a person would say.",
    "zh": f"{PLACEHOLDER}：在这里写出本技能做什么、何时使用，以及用户会说的话。",
}


def files(name: str, script: str, language: Language) -> dict[str, tuple[str, int]]:
    """The scaffold's files, each with its text and mode."""
    title = name.replace("-", " ").capitalize()
    made = dict[str, tuple[str, int]]()
    run = ""
    if script in _SCRIPTS:
        path, source = _SCRIPTS[script]
        made[path] = (source.format(title=title, name=name), 0o755)
        run = _RUN[language].format(path=path)
    text = (_ZH if language == "zh" else _EN).format(
        name=name,
        title=title,
        description=quote(_DESCRIPTION[language]),
        script=run,
    )
    return {"SKILL.md": (text, 0o644), **made}
