"""Content types of responses: which are accepted, and detection of HTML pages, perhaps a login."""

import re
from typing import Literal

from apexbridge.ssrf import display_url

ExpectedType = Literal["text", "json", "zip", "archive", "git-refs", "file", "any"]
"""`file` is anything but an HTML page, which may be a login; `any` is for verified digests."""

SNIFF_BYTES = 1024
_HTML_PAGE = "it is an HTML page, perhaps a login"
_GENERIC_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_CONTENT_TYPES: dict[ExpectedType, re.Pattern[str]] = {
    "text": re.compile(r"text/(?!html$).+|application/(markdown|x-markdown|yaml|x-yaml)"),
    "json": re.compile(r"application/(.+\+)?json|text/(plain|json)"),
    "zip": re.compile(r"application/(zip|x-zip|x-zip-compressed)"),
    "archive": re.compile(
        r"application/(x-)?(zip|zip-compressed|tar|gtar|gzip|gzip-compressed|tgz|compressed(-tar)?)"
    ),
    "git-refs": re.compile(r"application/x-git-upload-pack-advertisement"),
    "file": re.compile(r".+"),
    "any": re.compile(r".+"),
}
_HTML_START = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)*<(!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL
)


def type_problem(written: str, expected: ExpectedType) -> str:
    """Return why a content type, without parameters, does not fit; empty if it does."""
    if expected != "any" and written in {"text/html", "application/xhtml+xml"}:
        return _HTML_PAGE
    if written in _GENERIC_TYPES or _CONTENT_TYPES[expected].fullmatch(written):
        return ""
    return f"it is {display_url(written)}, not {expected}"


def body_problem(start: bytes, expected: ExpectedType) -> str:
    """Return why a body does not fit: it starts like an HTML page, whatever its type says."""
    is_page = expected != "any" and _HTML_START.match(start[:SNIFF_BYTES])
    return _HTML_PAGE if is_page else ""
