#!/usr/bin/env python3
"""Writes the top of a PNG picture that is not interlaced.

usage: crop_png.py SOURCE TARGET HEIGHT
"""
import struct
import sys
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by color type


def chunks(png):
    position = len(SIGNATURE)
    while position < len(png):
        (length,) = struct.unpack(">I", png[position:position + 4])
        yield png[position + 4:position + 8], png[position + 8:position + 8 + length]
        position += 12 + length


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def crop(png, height):
    """A row depends on the rows above it only, so those below are left out without decoding any."""
    parts = list(chunks(png))
    width, full_height, depth, color, *rest = struct.unpack(">IIBBBBB", parts[0][1])
    assert rest[2] == 0 and height <= full_height, "an interlaced picture, or one that is not so high"
    row = 1 + (width * CHANNELS[color] * depth + 7) // 8
    pixels = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))[:row * height]
    header = struct.pack(">IIBBBBB", width, height, depth, color, *rest)
    out = [chunk(b"IHDR", header)] + [chunk(kind, content) for kind, content in parts if kind in (b"PLTE", b"tRNS")]
    return SIGNATURE + b"".join(out) + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b"")


def main():
    source, target, height = sys.argv[1:]
    with open(source, "rb") as file:
        picture = crop(file.read(), int(height))
    with open(target, "wb") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
