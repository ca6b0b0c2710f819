"""The bytes of a zip's entries, unpacked in pieces and held to what was said of them."""

import zlib
from collections.abc import Iterator

from apexbridge.lifecycle.zip_directory import STORED, ZipEntry
from apexbridge.lifecycle.zip_source import ZipSource, broken, shown

_PIECE = 64 * 1024


def unpacked(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    """Give an entry's bytes in pieces, never more than it says it has.

    What came is only known to be right when no more comes: a caller keeps nothing of it before.

    Raises:
        ArchiveError: If size or checksum are not as said, or the packed bytes make no sense.
    """
    size, crc = 0, 0
    inflate = _stored if entry.method == STORED else _inflated
    for piece in inflate(source, entry):
        size += len(piece)
        if size > entry.size:
            raise broken(f"'{shown(entry.raw)}' is larger than it says")
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != entry.size:
        raise broken(f"'{shown(entry.raw)}' is smaller than it says")
    if crc != entry.crc:
        raise broken(f"'{shown(entry.raw)}' is damaged: its checksum is wrong")


def _stored(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    for offset in range(0, entry.packed, _PIECE):
        yield source.read(entry.start + offset, min(_PIECE, entry.packed - offset))


def _inflated(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for packed in _stored(source, entry):
        waiting = packed
        while waiting:
            if stream.eof:
                raise broken(f"'{shown(entry.raw)}' holds more than one stream")
            try:
                piece = stream.decompress(waiting, _PIECE)
            except zlib.error as error:
                raise broken(f"'{shown(entry.raw)}' is damaged: {error}") from None
            yield piece
            waiting = stream.unconsumed_tail or stream.unused_data
    while not stream.eof:
        # All was taken in, but not all given out: only as much as fits one piece at a time.
        piece = stream.decompress(b"", _PIECE)
        if not piece and not stream.eof:
            raise broken(f"'{shown(entry.raw)}' is cut off")
        yield piece
