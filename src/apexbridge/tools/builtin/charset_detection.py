"""Text encoding detection (BOM, UTF-8, GB18030, Latin-1) and magic numbers of binary files."""

import codecs
from dataclasses import dataclass
from typing import Literal

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be", "gb18030", "latin-1"]

_BOMS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC_NUMBERS = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a bitmap image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a zip archive (office documents are such, too)"),
    (b"\x1f\x8b", "gzip-compressed data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\xfd7zXZ\0", "xz-compressed data"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x7fELF", "a compiled program"),
    (b"MZ", "a compiled program"),
    (b"\xca\xfe\xba\xbe", "a compiled program"),
    (b"\0asm", "a WebAssembly module"),
    (b"OggS", "an Ogg recording"),
    (b"ID3", "an MP3 recording"),
)
_AMBIGUOUS_MAGIC = {b"BM", b"MZ", b"GIF8", b"ID3"}
"""Magic numbers that are also plausible text: they count only if the file has NUL bytes."""
_SNIFF_BYTES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedText:
    """A decoded text and its encoding, so that it can be written back unchanged."""

    text: str
    encoding: Encoding
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """Encode another text in the same encoding, BOM included.

        Raises:
            UnicodeEncodeError: If this encoding cannot say it.
        """
        return self.bom + text.encode(self.encoding)

    @property
    def label(self) -> str:
        """The encoding's name, if it is not plain UTF-8."""
        names = {"utf-8": "UTF-8 with a byte order mark" if self.bom else ""}
        return names.get(self.encoding, self.encoding.upper())


def binary_kind(data: bytes) -> str:
    """Name the type of a binary file; empty if the bytes may be text."""
    head = data[:_SNIFF_BYTES]
    if head.startswith(tuple(bom for bom, _ in _BOMS)):
        return ""
    is_binary = b"\0" in head
    if head[:4] == b"RIFF" and head[8:12] in {b"WEBP", b"WAVE", b"AVI "}:
        return {b"WEBP": "a WebP image", b"WAVE": "a WAV recording"}.get(head[8:12], "a video")
    if head[4:8] == b"ftyp":
        return "a video or picture (MP4 family)"
    for mark, kind in _MAGIC_NUMBERS:
        if head.startswith(mark) and (is_binary or mark not in _AMBIGUOUS_MAGIC):
            return kind
    return "binary data" if is_binary else ""


def decode(data: bytes) -> DecodedText:
    """Decode by BOM, else as UTF-8, GB18030 (Chinese) or Latin-1.

    It never fails; `encode` of the text gives the same bytes, except for broken UTF-16.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            errors = "surrogateescape" if encoding == "utf-8" else "replace"
            text = data[len(bom) :].decode(encoding, errors)
            return DecodedText(text=text, encoding=encoding, bom=bom)
    try:
        return DecodedText(text=data.decode(), encoding="utf-8")
    except UnicodeDecodeError:
        pass
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        text = ""
    if text and all(_is_common_in_chinese(char) for char in text):
        return DecodedText(text=text, encoding="gb18030")
    return DecodedText(text=data.decode("latin-1"), encoding="latin-1")


def _is_common_in_chinese(char: str) -> bool:
    return (
        char < "\x80"
        or "\u3000" <= char <= "\u9fff"
        or "\uff00" <= char <= "\uffef"
        or ("\u2010" <= char <= "\u203b")
    )
