#!/usr/bin/env python3
"""Draws the demo site's raster images: a road through hills at six hours of the day.

Needs Pillow (pip install pillow). The same program draws the same pictures each time; the encoders
of another Pillow may give other bytes. Run it in this folder; it writes site/gallery/*.{png,jpg,webp}
and site/favicon.ico.
"""

import math
from pathlib import Path

from PIL import Image, ImageDraw

SITE = Path(__file__).parent / "site"
WIDTH, HEIGHT = 960, 600
SCALE = 2  # drawn larger, then reduced: smooth edges

# name: sky above, sky at the horizon, farthest hill, nearest hill, road, sun or moon (x, y, r, colour)
HOURS = {
    "dawn.png": ("#33406b", "#f2b8a0", "#8a7f9f", "#27324a", "#c9b8a8", (0.30, 0.50, 46, "#ffe3c2")),
    "morning.jpg": ("#6aa5cf", "#e8f1ee", "#9fbdbb", "#2f5a4e", "#d9d2c0", (0.22, 0.27, 40, "#fffbe8")),
    "noon.webp": ("#3f8fcf", "#d7ecf5", "#8fb5a2", "#3d6b3f", "#e2dac6", (0.50, 0.13, 38, "#ffffff")),
    "evening.webp": ("#4a3f73", "#f6a45f", "#a2647a", "#2e2440", "#d8a58a", (0.70, 0.48, 52, "#ffd99a")),
    "dusk.jpg": ("#1c2748", "#c77f8b", "#5b5480", "#161d33", "#9a8fa3", (0.82, 0.55, 40, "#ffc9a3")),
    "night.png": ("#070d1c", "#23355a", "#1d2b48", "#060a14", "#54627c", (0.74, 0.20, 30, "#e9eef8")),
}
HILLS = 5


def rgb(colour):
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def mix(a, b, share):
    return tuple(round(x + (y - x) * share) for x, y in zip(rgb(a), rgb(b)))


def sky(draw, above, horizon):
    for y in range(HEIGHT * SCALE):
        share = min(1.0, y / (HEIGHT * SCALE * 0.68))
        draw.line([(0, y), (WIDTH * SCALE, y)], fill=mix(above, horizon, share**1.3))


def ridge(hill, seed):
    """The line of hill 0 (far) to HILLS - 1 (near), one y for each x."""
    base = HEIGHT * SCALE * (0.50 + 0.105 * hill)
    swing = HEIGHT * SCALE * (0.052 + 0.006 * hill)
    for x in range(WIDTH * SCALE + 1):
        at = x / (WIDTH * SCALE) * math.tau
        yield base + swing * (
            math.sin(at * (0.9 + 0.23 * hill) + seed * 1.7 + hill * 2.1)
            + 0.35 * math.sin(at * (2.3 + 0.4 * hill) + seed + hill)
        )


def road(draw, colour, ground):
    """An S that narrows towards the horizon, with a dashed middle line."""
    middle, left, right = [], [], []
    for step in range(201):
        near = (step / 200) ** 1.8
        y = HEIGHT * SCALE * (0.70 + 0.31 * near)
        x = WIDTH * SCALE * (0.50 + 0.10 * math.sin(near * 4.2 + 0.6) * (0.35 + near))
        half = WIDTH * SCALE * (0.004 + 0.105 * near)
        middle.append((x, y, half))
        left.append((x - half, y))
        right.append((x + half, y))
    draw.polygon(left + right[::-1], fill=mix(ground, colour, 0.42))
    for start in range(20, 200, 24):
        dash = middle[start : start + 11]
        edge = [(x - half * 0.035, y) for x, y, half in dash]
        edge += [(x + half * 0.035, y) for x, y, half in dash[::-1]]
        draw.polygon(edge, fill=rgb(colour))


def stars(draw):
    state = 2026
    for _ in range(130):
        state = (state * 1103515245 + 12345) % 2**31
        x = state % (WIDTH * SCALE)
        state = (state * 1103515245 + 12345) % 2**31
        y = state % int(HEIGHT * SCALE * 0.44)
        size = 1 + state // 7 % 3
        draw.ellipse([x, y, x + size, y + size], fill=(190, 202, 226))


def picture(name, seed):
    above, horizon, far, near, lane, (x, y, radius, light) = HOURS[name]
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE))
    draw = ImageDraw.Draw(image)
    sky(draw, above, horizon)
    if name.startswith("night"):
        stars(draw)
    x, y, radius = x * WIDTH * SCALE, y * HEIGHT * SCALE, radius * SCALE
    draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=rgb(light))
    for hill in range(HILLS):
        line = list(enumerate(ridge(hill, seed)))
        corners = [(WIDTH * SCALE, HEIGHT * SCALE), (0, HEIGHT * SCALE)]
        draw.polygon(line + corners, fill=mix(far, near, hill / (HILLS - 1)))
    road(draw, lane, near)
    return image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def save(image, path):
    if path.suffix == ".png":
        # A palette keeps it small; these pictures have few colours.
        image.quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)
    elif path.suffix == ".jpg":
        image.save(path, quality=78, optimize=True, progressive=True)
    else:
        image.save(path, quality=74, method=6)


def favicon():
    """The mark of art/mark.svg at the size that old browsers ask for."""
    size = 32 * 8
    image = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle([0, 0, size - 1, size - 1], size * 7 // 32, fill=rgb("#12363f"))
    for y, half, colour in ((9, 5, "#5f8a90"), (15, 8, "#9cc0c0"), (22, 11, "#f0b45a")):
        box = [(16 - half) * 8, (y - 2) * 8, (16 + half) * 8, (y + 2) * 8 - 1]
        draw.rounded_rectangle(box, 16, fill=rgb(colour))
    image.resize((32, 32), Image.Resampling.LANCZOS).save(SITE / "favicon.ico", sizes=[(32, 32)])


if __name__ == "__main__":
    for number, file in enumerate(HOURS):
        save(picture(file, number), SITE / "gallery" / file)
    favicon()
