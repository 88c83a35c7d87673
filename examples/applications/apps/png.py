#!/usr/bin/env python3
"""Makes a grey PNG, 1000 pixels wide, of the bytes that it reads."""

import struct
import sys
import zlib


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


data = sys.stdin.buffer.read()
rows = [b"\0" + data[at : at + 1000] for at in range(0, len(data) // 1000 * 1000, 1000)]
header = struct.pack(">IIBBBBB", 1000, len(rows), 8, 0, 0, 0, 0)
parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 0)), (b"IEND", b"")]
sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
