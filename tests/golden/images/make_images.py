#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the pictures of this folder and what Pillow makes of them.

NAME.png, NAME.jpg   small pictures of every kind that the engine reads
NAME.rgb             Image.open(NAME).convert("RGB"), raw
resize.txt           "width height side crc32": resize((side, side), BILINEAR) of the
                     picture source(width, height), which test_image.c makes too

Needs Pillow (with libjpeg-turbo) and numpy; the files here are of Pillow 12.3. Pillow 13
resizes columns before rows where the height shrinks and the width grows, which gives
other roundings; earlier ones never do.
Usage: make_images.py [FOLDER]
"""

import io
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 33, 25


def source(width, height):
    """Noise that is the same in C: a hash of each byte's index."""
    x = np.arange(width * height * 3, dtype=np.uint32) * np.uint32(2654435761)
    x ^= x >> np.uint32(15)
    x *= np.uint32(2246822519)
    return (x >> np.uint32(24)).astype(np.uint8).reshape(height, width, 3)


def smooth(channels):
    """Gradients with an edge, as photographs have: [HEIGHT][WIDTH][channels] in 0..1."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = []
    for c in range(channels):
        plane = 0.5 + 0.5 * np.sin(x * (0.11 + 0.07 * c) + y * (0.23 - 0.05 * c) + c)
        plane[(x - 20) ** 2 + (y - 12) ** 2 < 49] = 0.9 - 0.25 * c
        planes.append(plane)
    return np.stack(planes, axis=-1)


# ---- PNG, written by hand: Pillow does not write all kinds -----------------------


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def pack_rows(samples, depth):
    """Unfiltered scan lines of samples [height][width][channels]."""
    out = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            line = flat.astype(">u2").tobytes()
        else:
            bits = "".join(format(int(v), "0%db" % depth) for v in flat)
            bits += "0" * (-len(bits) % 8)
            line = int(bits, 2).to_bytes(len(bits) // 8, "big")
        out += b"\0" + line
    return out


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples, depth, colour, palette=None, transparent=None, interlaced=False):
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, int(interlaced))
    if interlaced:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        data = b"".join(pack_rows(p, depth) for p in parts if p.size)
    else:
        data = pack_rows(samples, depth)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if transparent is not None:
        out += chunk(b"tRNS", transparent)
    return out + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def levels(channels, depth):
    return np.round(smooth(channels) * (2**depth - 1)).astype(np.int64)


def png_files():
    files = {}
    for depth in (1, 2, 4, 8, 16):
        files["grey%d" % depth] = png(levels(1, depth), depth, 0)
    # Pillow cuts 16 bits of grey off at 255: some values below it too.
    low = levels(1, 16) >> np.tile(np.arange(WIDTH) % 2 * 8, (HEIGHT, 1))[..., None]
    files["grey16_low"] = png(low, 16, 0)
    for depth in (8, 16):
        files["rgb%d" % depth] = png(levels(3, depth), depth, 2)
        files["grey_alpha%d" % depth] = png(levels(2, depth), depth, 4)
        files["rgb_alpha%d" % depth] = png(levels(4, depth), depth, 6)
    for depth in (1, 2, 4, 8):
        count = 2**depth
        palette = source(count, 1).reshape(count, 3)
        files["palette%d" % depth] = png(levels(1, depth), depth, 3, palette)
    palette = source(16, 1).reshape(16, 3)
    files["palette_clear"] = png(levels(1, 4), 4, 3, palette, bytes(range(0, 160, 10)))
    files["rgb_clear"] = png(levels(3, 8), 8, 2, None, struct.pack(">HHH", 230, 166, 102))
    files["grey_clear"] = png(levels(1, 8), 8, 0, None, struct.pack(">H", 230))
    files["rgb_interlaced"] = png(levels(3, 8), 8, 2, interlaced=True)
    files["grey1_interlaced"] = png(levels(1, 1), 1, 0, interlaced=True)
    return {name + ".png": data for name, data in files.items()}


# ---- JPEG -------------------------------------------------------------------------


def jpeg(channels, mode, **options):
    data = levels(channels, 8).astype(np.uint8)
    picture = Image.fromarray(data if channels > 1 else data[..., 0], mode)
    out = io.BytesIO()
    picture.save(out, "jpeg", **options)
    return out.getvalue()


def turned():
    """As a camera held upright writes it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return jpeg(3, "RGB", quality=90, exif=exif)


def ycck():
    """A CMYK file whose Adobe marker says that it is YCCK."""
    data = bytearray(jpeg(4, "CMYK", quality=90))
    place = data.index(b"Adobe") + 11
    assert data[place] == 0
    data[place] = 2
    return bytes(data)


def jpeg_files():
    return {
        "colour420.jpg": jpeg(3, "RGB", quality=85, subsampling=2),
        "colour422.jpg": jpeg(3, "RGB", quality=85, subsampling=1),
        "colour444.jpg": jpeg(3, "RGB", quality=95, subsampling=0),
        "low_quality.jpg": jpeg(3, "RGB", quality=10),
        "progressive.jpg": jpeg(3, "RGB", quality=85, progressive=True),
        "restarts.jpg": jpeg(3, "RGB", quality=85, restart_marker_blocks=2),
        "kept_rgb.jpg": jpeg(3, "RGB", quality=90, keep_rgb=True),
        "grey.jpg": jpeg(1, "L", quality=85),
        "cmyk.jpg": jpeg(4, "CMYK", quality=90),
        "ycck.jpg": ycck(),
        "turned.jpg": turned(),
    }


SIZES = [
    (1, 1, 1), (1, 1, 5), (1, 7, 4), (7, 1, 4), (2, 2, 3), (3, 3, 2), (5, 3, 4), (4, 4, 4),
    (4, 9, 4), (9, 4, 4), (33, 25, 14), (33, 25, 28), (33, 25, 100), (100, 17, 56), (17, 100, 56),
    (256, 256, 255), (255, 257, 256), (640, 480, 224), (1000, 1, 896), (1, 1000, 896),
    (896, 896, 896), (896, 100, 896), (100, 896, 896), (897, 895, 896), (1792, 1792, 896),
    (3000, 2000, 896), (2000, 3001, 896), (32768, 1, 896), (1, 32768, 56), (32768, 3, 7),
]  # fmt: skip


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for name, data in {**png_files(), **jpeg_files()}.items():
        (folder / name).write_bytes(data)
        rgb = Image.open(io.BytesIO(data)).convert("RGB")
        (folder / name).with_suffix(".rgb").write_bytes(rgb.tobytes())
    lines = []
    for width, height, side in SIZES:
        picture = Image.fromarray(source(width, height))
        out = picture.resize((side, side), Image.Resampling.BILINEAR).tobytes()
        lines.append("%d %d %d %08x\n" % (width, height, side, zlib.crc32(out)))
    (folder / "resize.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
