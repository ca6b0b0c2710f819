"""Content types of responses: which are accepted, and detection of HTML pages, perhaps a login."""

import re
from typing import Literal

ExpectedType = Literal["text", "json", "zip", "archive", "git-refs"]

SNIFF_BYTES = 1024
HTML_PAGE = "it is an HTML page, perhaps a login"
_GENERIC_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_CONTENT_TYPES: dict[ExpectedType, re.Pattern[str]] = {
    "text": re.compile(r"text/(?!html$).+|application/(markdown|x-markdown|yaml|x-yaml)"),
    "json": re.compile(r"application/(.+\+)?json|text/(plain|json)"),
    "zip": re.compile(r"application/(zip|x-zip|x-zip-compressed)"),
    "archive": re.compile(
        r"application/(x-)?(zip|zip-compressed|tar|gtar|gzip|gzip-compressed|tgz|compressed(-tar)?)"
    ),
    "git-refs": re.compile(r"application/x-git-upload-pack-advertisement"),
}
_HTML_START = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)*<(!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL
)


def is_html(start: bytes) -> bool:
    """Return whether a body starts like an HTML page, whatever its content type says."""
    return _HTML_START.match(start[:SNIFF_BYTES]) is not None


def is_html_type(written: str) -> bool:
    """Return whether a content type is that of an HTML page."""
    return written in {"text/html", "application/xhtml+xml"}


def is_accepted(written: str, expected: ExpectedType) -> bool:
    """Return whether a content type, without parameters, fits; generic ones always do."""
    return written in _GENERIC_TYPES or bool(_CONTENT_TYPES[expected].fullmatch(written))
