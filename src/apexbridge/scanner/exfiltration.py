"""Exfiltration: secrets read and sent in one script, undeclared hosts, and requests in prose.

A regex on one line cannot detect these: source and network send are on different lines, and the
sentences of a request are harmless word by word.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apexbridge.scanner.pattern_matcher import Hit, SkillContext, is_quoted, without_comment
from apexbridge.scanner.report import worst_level
from apexbridge.scanner.rules import RiskLevel, fragment, lower_level, regex, word_list
from apexbridge.scanner.scan_input import CodeBlock, TextFile

MAX_LINE_DISTANCE = 40
"""Lines between a secret source and a network send that still count as one flow."""

CLOSE_DISTANCE = 12
"""Lines within which source and send are certain enough to block the skill."""

HOST_WINDOW = 6
"""Lines before a network send in which its URL may be defined."""

MAX_SENDS = 200
MAX_CODE_LINE = 2_000
MAX_PROSE_LINE = 700
MAX_PROSE_LINES = 2_000
"""Bounds on the work for one file, so that a crafted file cannot stall a scan."""

SEND_HINTS = (
    "curl", "wget", "post", "put", "send", "smtp", "invoke-", "nc ", "ncat", "scp ", "request",
    "upload", "connection(",
)  # fmt: skip
"""Substrings, one of which is in every line that sends data: a cheap pre-filter."""

_SECRET_PATHS = (
    "{{credential_paths}}",
    "{{credential_stores}}",
    r"(?<![\w.])\.env(?:\.\w{1,12})?(?=[\"'\s),;|]|$)(?!\s{0,3}(?:file|example))",
    r"\*\.pem\b",
    r"\*\.key\b",
    r"\bcredentials\*",
    r"\.mykey\b",
)
_EXCLUSION = re.compile(r"--exclude(?:-from)?[= ]\s?[\"']?[^\s\"']{1,80}[\"']?")
_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_PLACEHOLDER_HOSTS = re.compile(r"example|localhost|your|placeholder|\.local$|\.test$|\.internal$")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|[。！？；]|\s\|\s|(?<=:)\s+(?=[A-Z])")
_GENERIC_LABELS = frozenset(
    {"api", "www", "com", "app", "dev", "cloud", "org", "net", "hooks", "data"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CodeLine:
    """A line of code that is not a comment."""

    number: int
    text: str


def secret_exfiltration(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    """Match code blocks and scripts that read a secret and send data to the network."""
    for block in file.code_blocks:
        code = file.lower[file.line_starts[block.first - 1] : file.line_end(block.last)]
        if not any(hint in code for hint in SEND_HINTS):
            continue
        if not any(hint in code for hint in word_list("secret_source_hints")):
            continue
        rows = _code_lines(file, block)
        sends = [row.number for row in rows if _is_sending(row.text)]
        sources = _secret_sources(rows, sends, block.language) if sends else []
        if not sources:
            continue
        distance, line = min((_nearest_distance(source, sends), source) for source in sources)
        is_certain = distance <= CLOSE_DISTANCE or any(map(_is_obfuscated, rows))
        level: RiskLevel = "block" if is_certain else "warn"
        if block.role == "reference":
            level = lower_level(level)
        if context.is_about_security and block.role != "script":
            level = lower_level(level, 2)
        yield Hit(rule="AB021", level=level, line=line, matched=file.lines[line - 1].strip())


def _secret_sources(rows: Sequence[_CodeLine], sends: Sequence[int], language: str) -> list[int]:
    """Return the lines near a network send that dump the environment or read a secret file."""
    near = [row for row in rows if _nearest_distance(row.number, sends) <= MAX_LINE_DISTANCE]
    sources = [row.number for row in near if _dumps_environment(row.text, language)]
    # A pattern to leave out is the opposite of a source.
    secrets = [
        row.number for row in near if regex(*_SECRET_PATHS).search(_EXCLUSION.sub(" ", row.text))
    ]
    # A path alone may be documentation; it counts where the code reads some file.
    if secrets and any(fragment("file_read").search(row.text) for row in rows):
        sources += secrets
    return sources


def _dumps_environment(line: str, language: str) -> bool:
    if fragment("full_environment").search(line):
        return True
    # In other languages `f(env)` is a call with an argument of that name.
    is_shell = language not in {"python", "javascript"}
    return is_shell and bool(fragment("shell_environment").search(line))


def _code_lines(file: TextFile, block: CodeBlock) -> list[_CodeLine]:
    lines = enumerate(file.lines[block.first - 1 : block.last], block.first)
    return [
        _CodeLine(number=number, text=line[:MAX_CODE_LINE])
        for number, line in lines
        if line.strip() and not _is_comment(line, block.language)
    ]


def _is_sending(line: str) -> bool:
    # Loopback traffic stays on this machine, and most examples of local servers use it.
    return _sends_data(line) and not fragment("loopback_address").search(without_comment(line))


def _sends_data(line: str) -> bool:
    lower = line.lower()
    has_hint = any(hint in lower for hint in SEND_HINTS)
    return has_hint and bool(fragment("network_send").search(line))


def _is_obfuscated(row: _CodeLine) -> bool:
    """Return whether a line encodes the payload, or names a paste site or webhook collector."""
    return bool(fragment("obfuscation").search(row.text) or fragment("drop_sites").search(row.text))


def _nearest_distance(line: int, others: Sequence[int]) -> int:
    """Return the distance to the nearest of some sorted line numbers."""
    at = bisect_left(others, line)
    return min(abs(line - other) for other in others[max(0, at - 1) : at + 1])


def _is_comment(line: str, language: str) -> bool:
    start = line.lstrip()[:2]
    return start == "//" if language == "javascript" else start.startswith("#")


def undeclared_hosts(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    """Match code that sends data to a hostname which the frontmatter does not declare."""
    seen = set[str]()
    for block in file.code_blocks:
        if block.role not in {"command", "script"}:
            continue
        for line in _sending_lines(file, block):
            nearby = file.lines[max(block.first, line - HOST_WINDOW) - 1 : line + 2]
            for match in _HOST.finditer("\n".join(row[:MAX_CODE_LINE] for row in nearby)):
                host = match[1].lower()
                if host in seen or len(seen) >= MAX_SENDS or is_declared_host(host, context):
                    continue
                seen.add(host)
                yield Hit(rule="AB065", level="review", line=line, matched=host)


def _sending_lines(file: TextFile, block: CodeBlock) -> Iterator[int]:
    count = 0
    for number in range(block.first, block.last + 1):
        if count < MAX_SENDS and _sends_data(file.lines[number - 1][:MAX_CODE_LINE]):
            count += 1
            yield number


def is_declared_host(host: str, context: SkillContext) -> bool:
    """Return whether a hostname is well known, a placeholder, or declared by the frontmatter."""
    if _PLACEHOLDER_HOSTS.search(host) or fragment("well_known_hosts").search(host):
        return True
    words = set(re.split(r"[.-]", host)[:-1]) - _GENERIC_LABELS
    return any(len(word) > 2 and word in context.subject for word in words)


def exfiltration_requests(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    """Match prose that asks to send data elsewhere, with a pretext or in secrecy.

    No single word of such a sentence is suspicious. Only the combination in one sentence is: a
    transfer verb, the data or the destination, and a pretext or a demand for secrecy.
    """
    if file.role_of(1) == "script":
        return
    for line, trigger in _trigger_lines(file):
        start = file.line_starts[line - 1]
        text = file.text[start : file.line_end(line)][:MAX_PROSE_LINE]
        # A description states its purpose openly, so that a pretext in it is none.
        if file.role_of(line) not in {"instruction", "reference"} or text.startswith(
            "description:"
        ):
            continue
        level = _worst_sentence(text, trigger)
        if level is None:
            continue
        steps = int(context.is_about_security) + int(is_quoted(file.text, start, start + len(text)))
        yield Hit(rule="AB065", level=lower_level(level, steps), line=line, matched=text.strip())


def _trigger_lines(file: TextFile) -> Iterator[tuple[int, str]]:
    """Return the lines with a pretext, a demand for secrecy or an external destination."""
    for trigger in ("pretext", "secrecy", "external_destination"):
        last = 0
        for count, match in enumerate(fragment(trigger).finditer(file.text)):
            if count >= MAX_PROSE_LINES:
                break
            line = file.line_number(match.start())
            if line != last:
                yield line, trigger
            last = line


def _worst_sentence(text: str, trigger: str) -> RiskLevel | None:
    found = list[RiskLevel]()
    for part in _SENTENCE_END.split(text):
        level = _request_level(part, trigger)
        if level is not None:
            found.append(level)
    return worst_level(found)


def _request_level(text: str, trigger: str) -> RiskLevel | None:
    """Rate a sentence; words that only occur in it, without being connected, are `review`."""

    def has(name: str) -> bool:
        return bool(fragment(name).search(text))

    if not has(trigger) or has("request_negation"):
        return None
    is_transfer = has("transfer_verbs")
    if trigger == "external_destination":
        return "review" if is_transfer and (has("secret_nouns") or has("data_nouns")) else None
    if _is_ordered_transfer(text, trigger):
        return "warn"
    is_near_miss = is_transfer and (
        has("external_destination") or has("secret_nouns") or has("data_nouns")
    )
    return "review" if is_near_miss else None


def _is_ordered_transfer(text: str, trigger: str) -> bool:
    """Return whether a sentence orders a transfer: verb, object and destination in their places.

    "Data access for monitoring is through an endpoint" has all the words and orders nothing.
    """
    if trigger == "secrecy":
        return bool(fragment("secret_transfer").search(text))
    if fragment("passive_transfer").search(text) or all(
        fragment(name).search(text) for name in ("mandatory", "secret_nouns", "external_service")
    ):
        return True
    return bool(fragment("transfer_of_data").search(text) and fragment("sent_outside").search(text))
