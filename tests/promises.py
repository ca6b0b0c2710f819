"""The promise register: what each bad input or fault must get.

A test names the rows it proves with `@pytest.mark.promise("M01")`. A row is `kept` when all of it
is proved, `partly` when the part that exists is proved (the note says what is still to come), and
`open` when nothing that could keep it is built yet. `tests/architecture/test_promises.py` compares
the register with the tests, so the open rows can only become fewer.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["kept", "partly", "open"]


@dataclass(frozen=True, slots=True)
class Promise:
    """One row: a bad input or fault, and the promised result."""

    id: str
    says: str
    state: State = "open"
    remains: str = ""


def _rows(*promises: Promise) -> dict[str, Promise]:
    return {promise.id: promise for promise in promises}


PROMISES = _rows(
    # Table Z, archives.
    Promise(
        "Z01", "path traversal (zip slip): an entry that climbs out with .. is refused", "kept"
    ),
    Promise("Z02", "an entry with an absolute path is refused", "kept"),
    Promise("Z03", "drive letters and UNC names are refused", "kept"),
    Promise("Z04", "backslashes become slashes only where no entry uses slashes", "kept"),
    Promise("Z05", "a link entry is refused, wherever it points", "kept"),
    Promise("Z06", "an entry below a link is refused before anything is written", "kept"),
    Promise("Z07", "pipes, devices and sockets are refused", "kept"),
    Promise("Z08", "odd modes are masked to 0644 or 0755", "kept"),
    Promise("Z09", "the same name twice is refused", "kept"),
    Promise("Z10", "SKILL.md beside skill.md is a collision", "kept"),
    Promise("Z11", "names equal under NFKC and case folding collide", "kept"),
    Promise("Z12", "a file that is also a folder is refused", "kept"),
    Promise("Z13", "reserved names, trailing dots and streams are refused", "kept"),
    Promise("Z14", "control, direction and zero-width characters in names are refused", "kept"),
    Promise("Z15", "NUL in a name is refused", "kept"),
    Promise("Z16", "too deep or too long paths are refused before anything is written", "kept"),
    Promise("Z17", "a zip bomb is stopped at the cap", "kept"),
    Promise("Z18", "a wrong declared size of an entry is detected", "kept"),
    Promise("Z19", "overlapping entries are refused on every Python", "kept"),
    Promise("Z20", "too many entries are refused from the count alone", "kept"),
    Promise("Z21", "an archive inside stays opaque and is a finding", "kept"),
    Promise("Z22", "an encrypted entry is refused with its own error code", "kept"),
    Promise("Z23", "data before, after or between two archives is refused", "kept"),
    Promise("Z24", "headers that disagree are refused", "kept"),
    Promise("Z25", "broken, truncated and empty archives are refused", "kept"),
    Promise("Z26", "only stored and deflated entries are taken", "kept"),
    Promise("Z27", "data descriptors are taken", "kept"),
    Promise("Z28", "litter of desktop systems is dropped", "kept"),
    Promise("Z29", "files at the root get a hint with the right layout", "kept"),
    Promise("Z30", "several top folders are refused and named", "kept"),
    Promise("Z31", "no SKILL.md is refused; other letter case warns", "kept"),
    Promise("Z32", "GBK names without the UTF-8 flag are decoded", "kept"),
    Promise("Z33", "UTF-8 names without the flag are decoded", "kept"),
    Promise("Z34", "shipped markers and version control are dropped", "kept"),
    Promise("Z35", "folder and declared name must agree", "kept"),
    Promise("Z36", "a hostile upload name is never a path", "kept"),
    # Table M, manifests.
    Promise("M01", "missing or unclosed frontmatter is reported; a scan continues", "kept"),
    Promise("M02", "an unquoted colon is repaired and reported", "kept"),
    Promise("M03", "a Python tag runs nothing and is refused", "kept"),
    Promise("M04", "YAML alias and merge bombs are refused at once", "kept"),
    Promise("M05", "deep, wide and huge frontmatter is refused at once", "kept"),
    Promise("M06", "a duplicate key is refused", "kept"),
    Promise("M07", "names that look like other types stay text", "kept"),
    Promise(
        "M08",
        "invalid names are reported by rule and never become a path; a vendor's are a warning",
        "kept",
    ),
    Promise(
        "M09",
        "missing, blank, long or unusual descriptions are reported; a long one installs",
        "kept",
    ),
    Promise("M10", "markup in a description is escaped at every exit", "kept"),
    Promise("M11", "hidden characters are found and shown", "kept"),
    Promise("M12", "BOM and CRLF are accepted; other encodings are reported", "kept"),
    Promise("M13", "unknown keys and spellings are kept and reported", "kept"),
    Promise("M14", "path patterns with endless braces are refused", "kept"),
    Promise("M15", "a SKILL.md that is huge, a folder or a link is refused", "kept"),
    Promise("M16", "references to paths outside the skill are reported", "kept"),
    # Table L, lifecycle and crashes.
    Promise("L01", "installing a taken name changes nothing", "kept"),
    Promise("L02", "of fifty installs of one name one wins", "kept"),
    Promise("L03", "concurrent changes of one skill are serialized", "kept"),
    Promise("L04", "a kill at any system call leaves every invariant true", "kept"),
    Promise("L05", "a full or failing disk rolls back", "kept"),
    Promise("L06", "an embedder that fails leaves no bad vector", "kept"),
    Promise("L07", "an invalid `.vectorized` marker means embedding again", "kept"),
    Promise("L08", "a corrupt index is rebuilt", "kept"),
    Promise("L09", "a folder deleted outside the program is no longer found", "kept"),
    Promise(
        "L10",
        "an edited SKILL.md is reloaded; an invalid edit keeps the last valid version",
        "kept",
    ),
    Promise("L11", "an edit of the description changes nothing else", "kept"),
    Promise("L12", "no other field can be edited", "kept"),
    Promise("L13", "uninstalling the unknown, the bundled and the running", "kept"),
    Promise("L14", "a second server on the same data refuses to start", "kept"),
    Promise("L15", "read-only and linked data folders", "kept"),
    Promise("L16", "a scan of any size ends, and is listed by pages", "kept"),
    # Table X, execution.
    Promise("X01", "unknown skills and scripts outside are refused", "kept"),
    Promise("X02", "what cannot start says why", "kept"),
    Promise("X03", "a time-out kills the whole tree", "kept"),
    Promise("X04", "a script's own 124 is no time-out", "kept"),
    Promise("X05", "a flood of output is cut and memory stays bounded", "kept"),
    Promise("X06", "a daemon does not outlive its call", "kept"),
    Promise("X07", "fork bombs and memory hogs hit their limits", "kept"),
    Promise("X08", "scripts that ignore signals or wait for input end at the deadline", "kept"),
    Promise("X09", "no secret of the server's environment is seen", "kept"),
    Promise("X10", "no network without a grant", "kept"),
    Promise("X11", "only the workspace can be written", "kept"),
    Promise("X12", "arguments arrive as they are", "kept"),
    Promise("X13", "any output becomes valid JSON", "kept"),
    Promise("X14", "a disconnect of the caller cancels its run", "kept"),
    Promise("X15", "no isolation, no run", "kept"),
    # Table S, server.
    Promise("S01", "keys and scopes are checked", "kept"),
    Promise("S02", "a foreign Host header is refused (DNS rebinding)", "kept"),
    Promise("S03", "a foreign Origin header is refused (CSRF)", "kept"),
    Promise("S04", "JSON in another content type is refused", "kept"),
    Promise("S05", "streams across origins are refused", "kept"),
    Promise("S06", "no open bind without a key", "kept"),
    Promise("S07", "bodies are capped while they arrive", "kept"),
    Promise("S08", "malformed JSON is a 400 in the client's format", "kept"),
    Promise("S09", "too many streams get 429 with Retry-After", "kept"),
    Promise("S10", "upstream errors are mapped to status codes", "kept"),
    Promise("S11", "shutdown is graceful", "kept"),
    Promise("S12", "secrets are redacted everywhere", "kept"),
    Promise("S13", "path traversal in URLs gets 404", "kept"),
    Promise("S14", "escape sequences in names reach no terminal or log", "kept"),
    Promise("S15", "markup from skills is inert in the console (XSS)", "kept"),
    Promise("S16", "odd clocks and locales crash nothing", "kept"),
    # Table R, remote fetches.
    Promise("R01", "SSRF: loopback and private addresses are blocked", "kept"),
    Promise("R02", "SSRF: redirects to private addresses are blocked", "kept"),
    Promise("R03", "SSRF: a resolved address is pinned (DNS rebinding)", "kept"),
    Promise("R04", "other schemes are refused", "kept"),
    Promise("R05", "endless bodies are capped", "kept"),
    Promise("R06", "login pages and loops are clear errors", "kept"),
    Promise("R07", "changed bytes behind a pinned hash are refused", "kept"),
    # Table G, agent, hooks, permissions.
    Promise("G01", "prompt injection: a skill's text changes no permission", "kept"),
    Promise("G02", "prompt injection: a tool's output stays data", "kept"),
    Promise("G03", "bad tool calls become errors the model can read", "kept"),
    Promise("G04", "limits end a turn with what there is", "kept"),
    Promise("G05", "recursion and fan-out are bounded", "kept"),
    Promise("G06", "a failing PreToolUse hook denies", "kept"),
    Promise("G07", "a once hook runs once", "kept"),
    Promise("G08", "deny beats allow, and prefixes end at words", "kept"),
    Promise("G09", "a tool outside allowed-tools is refused with an error", "kept"),
    Promise("G10", "a skill removed in mid-conversation is an error, not a crash", "kept"),
    Promise(
        "G11", "baiting descriptions and clones are found", "partly", "the report at an install"
    ),
    Promise("G12", "Chinese prompt injection is found", "kept"),
    Promise("G13", "approvals die with the hash they were given for", "kept"),
)
