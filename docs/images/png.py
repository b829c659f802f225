"""Pictures of pages as small PNG files: 256 colours, which is nearly all that a page has.

It reads what a browser writes (8 bits, RGB, not interlaced) and is no library for pictures: `take` is what needs it.
"""

import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB, PALETTE = 2, 3
COLOURS = 256


def small(picture: bytes) -> bytes:
    """Return the same picture in 256 colours; others, at the edges of letters, become the nearest of them."""
    chunks = list(_chunks(picture))
    width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"])
    if (depth, kind, interlaced) != (8, RGB, 0):
        raise ValueError("Only what browsers write can be read: 8 bits, RGB, not interlaced")
    data = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    lines = [[line[at : at + 3] for at in range(0, len(line), 3)] for line in _lines(data, 3 * width)]
    palette, number = _chosen(Counter(colour for line in lines for colour in line))
    indexed = b"".join(b"\0" + bytes(number[colour] for colour in line) for line in lines)
    header = struct.pack(">IIBBBBB", width, height, 8, PALETTE, 0, 0, 0)
    written = {b"IHDR": header, b"PLTE": b"".join(palette), b"IDAT": zlib.compress(indexed, 9), b"IEND": b""}
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in written.items()
    )


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(picture):
        length, name = struct.unpack_from(">I4s", picture, at)
        yield name, picture[at + 8 : at + 8 + length]
        at += 12 + length


def _lines(data: bytes, width: int) -> Iterator[bytes]:
    """Yield the lines as they were before each was written as a difference (PNG, 9.2)."""
    above = bytes(width)
    for at in range(0, len(data), width + 1):
        line = bytearray(data[at + 1 : at + 1 + width])
        match data[at]:
            case 1:
                for x in range(3, width):
                    line[x] = (line[x] + line[x - 3]) & 255
            case 2:
                line = bytearray((x + y) & 255 for x, y in zip(line, above, strict=True))
            case 3:
                for x in range(width):
                    line[x] = (line[x] + ((line[x - 3] if x > 2 else 0) + above[x]) // 2) & 255
            case 4:
                for x in range(width):
                    line[x] = (line[x] + _paeth(line[x - 3], above[x], above[x - 3], x > 2)) & 255
        above = bytes(line)
        yield above


def _paeth(left: int, above: int, corner: int, is_inside: bool) -> int:
    if not is_inside:
        return above
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner


def _chosen(counted: Counter[bytes]) -> tuple[list[bytes], dict[bytes, int]]:
    """Return a palette, and for each colour its number there.

    The next colour is always the one that is missed most: frequent, or far from those that were chosen.
    """
    palette: list[bytes] = []
    number = dict.fromkeys(counted, 0)
    missed = dict.fromkeys(counted, 3 * 256**2)
    weight = {colour: math.sqrt(count) for colour, count in counted.items()}
    while len(palette) < COLOURS and any(missed.values()):
        chosen = max(missed, key=lambda colour: weight[colour] * missed[colour])
        for colour in counted:
            distance = sum((x - y) ** 2 for x, y in zip(colour, chosen, strict=True))
            if distance < missed[colour]:
                missed[colour], number[colour] = distance, len(palette)
        palette.append(chosen)
    return palette, number
