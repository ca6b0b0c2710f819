"""Data augmentation: requests beside pasted error messages, stack traces and log lines."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.jsonl import read_rows

_ASKS = {
    "en": (
        "what does this mean", "any idea?", "help", "how do I fix this", "it keeps failing",
        "getting this error", "why does this happen", "this shows up since the update", "fix this",
        "can you look at it", "I get the following:", "see below", "not sure what went wrong",
    ),
    "zh": (
        "这是什么意思", "怎么解决", "帮我看看", "一直报错", "报了这个错", "为什么会这样",
        "更新之后就这样了", "修一下", "看下面", "不知道哪里出问题了", "求助", "跑不起来了",
    ),
}  # fmt: skip
_LINES = (
    "Traceback (most recent call last):",
    '  File "/home/{user}/{word}/{word}.py", line {n}, in <module>',
    '  File "/usr/lib/python3.11/site-packages/{word}/{word}.py", line {n}, in {word}',
    "    return self._{word}(*args, **kwargs)",
    "RuntimeError: {word} failed with status {n}",
    "ValueError: invalid value for {word}: {n}",
    "AttributeError: '{Word}' object has no attribute '{word}'",
    "ConnectionError: HTTPSConnectionPool(host='{word}.com', port=443): Max retries exceeded",
    "    at Object.<anonymous> (/app/src/{word}.js:{n}:{n})",
    "    at async {Word}.{word} (node:internal/{word}:{n}:{n})",
    "npm ERR! code ELIFECYCLE errno {n}",
    "npm ERR! A complete log of this run can be found in: ~/.npm/_logs/{date}-debug.log",
    "npm WARN deprecated {word}@{n}.{n}.0: no longer maintained",
    "ERROR: Failed building wheel for {word}",
    "error: subprocess-exited-with-error",
    "Step {n}/{n} : RUN ./{word}.sh ---> Running in 3fa9c1d2",
    "Error response from daemon: {word} not found",
    "fatal: could not read from remote repository {word}",
    "error: failed to push some refs to 'origin'",
    'ERROR: relation "{word}" does not exist LINE {n}: SELECT * FROM {word}',
    "SQLSTATE[HY000]: General error: {n}",
    "[{date} {time}] ERROR {word}.{word}: exit code {n}",
    "{date} {time},{n} INFO [{word}] request id={n} done in {n} ms",
    "{date}T{time}Z WARN {word} retry {n}/5",
    "E/{Word}({n}): java.lang.IllegalStateException",
    "    at com.{word}.{Word}.run({Word}.java:{n})",
    "panic: {word}: unexpected end of input",
    "thread 'main' panicked at src/{word}.rs:{n}:{n}",
    "HTTP/1.1 500 Internal Server Error",
    '{"error": {"code": {n}, "message": "{word} is not available"}}',
    "Exit status {n}",
    "...",
)
_WORDS = (
    "core", "utils", "main", "handler", "worker", "client", "session", "config", "loader", "app",
    "runner", "service", "base", "module", "task", "manager", "api", "job", "common", "server",
)  # fmt: skip
_USERS = ("me", "anna", "dev", "wang", "ubuntu", "root")
_SLOT = re.compile(r"\{(\w+)\}")  # not str.format: messages have braces of their own
_NAME_PARTS = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_SUBJECT_SHARE = 0.5
_MOST_LINES = 4
_LONGEST = 220
"""Characters of log before a request: more would push it out of the 128 tokens."""


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error message, and what it is about in both languages."""

    log: str
    en: str
    zh: str

    def about(self, language: str) -> str:
        """Return its subject in a language."""
        return self.en if language == "en" else self.zh


def read_errors(path: Path) -> list[KnownError]:
    """Read lines of `log`, `en`, `zh`."""
    return [KnownError(row["log"], row["en"], row["zh"]) for row in read_rows(path)]


def with_log(request: str, chance: random.Random, subject: str = "") -> str:
    """Put log lines before or after a request; some name its subject, as paths and modules do."""
    words = _NAME_PARTS.findall(subject.lower())[:3]
    said = [_line(words, chance) for _ in range(chance.randint(1, _MOST_LINES))]
    log = chance.choice(("\n", " ", "\n")).join(said)
    if chance.random() < 0.5:
        return f"{log[:_LONGEST]}\n{request}"
    return f"{request}{chance.choice((': ', chr(10), ' ', '：'))}{log}"


def ask_about(error: KnownError, language: str, chance: random.Random) -> str:
    """Write a request that only pastes an error, with or without a word about it."""
    word = chance.choice((*_WORDS, *_USERS))
    log = _filled(error.log, word, chance)
    if chance.random() < 0.5:
        other = _line((), chance)
        log = f"{log} {other}" if chance.random() < 0.6 else f"{other[:60]} {log}"
    ask = chance.choice(_ASKS[language])
    return chance.choice((log, f"{ask} {log}", f"{log}\n{ask}", f"{ask}: {log}"))


def _line(subject: Sequence[str], chance: random.Random) -> str:
    named = bool(subject) and chance.random() < _SUBJECT_SHARE
    word = "_".join(subject) if named else chance.choice(_WORDS)
    return _filled(chance.choice(_LINES), word, chance)


def _filled(template: str, word: str, chance: random.Random) -> str:
    slots = {
        "word": word, "name": word, "Word": word.title().replace("_", ""),
        "Name": word.title().replace("_", ""), "user": chance.choice(_USERS),
        "n": str(chance.choice((1, 2, 3, 17, 42, 87, 127, 137, 255, 404, 1045, 5432))),
        "v": f"{chance.randint(0, 9)}.{chance.randint(0, 20)}.{chance.randint(0, 9)}",
        "date": f"2025-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
        "time": f"{chance.randint(0, 23):02}:{chance.randint(0, 59):02}:{chance.randint(0, 59):02}",
    }  # fmt: skip
    return _SLOT.sub(lambda found: slots.get(found[1], found[0]), template)
