#!/usr/bin/env python3
"""Draws the recording of a terminal (asciicast v2, as `asciinema rec` writes it) as an animated SVG.

usage: cast_to_svg.py CAST SVG

Shows what the terminal shows at the end. Each line appears at its time in the recording, four times as
fast; without animation (prefers-reduced-motion) all are visible. A line that the program rewrites appears with its last text. Understands what the recorded programs print: text, newline,
carriage return, erasing of a line, bold and the eight colors.
"""
import json
import re
import sys
from html import escape

CELL, LINE, MARGIN, BAR = 8.4, 18, 14, 30
SPEED = 4
COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea", "90": "#8b949e"}
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)|\x1b.")


class Screen:
    """Lines of (character, style) cells, each line with the time at which it last changed."""

    def __init__(self):
        self.lines, self.times, self.column, self.style = [[]], [0.0], 0, ""

    def write(self, time, text):
        for codes, command, back, newline, plain in TOKEN.findall(text):
            if command == "m":
                self.set_style(codes)
            elif command == "K":
                del self.lines[-1][self.column:]
            elif back:
                self.column = 0
            elif newline:
                self.lines.append([])
                self.times.append(time)
                self.column = 0
            elif plain:
                line = self.lines[-1]
                line[self.column:self.column + len(plain)] = [(character, self.style) for character in plain]
                self.column += len(plain)
                self.times[-1] = time

    def set_style(self, codes):
        for code in codes.split(";"):
            if code in ("", "0"):
                self.style = ""
            elif code == "1":
                self.style = "font-weight:bold"
            elif code in COLORS:
                self.style = f"fill:{COLORS[code]}"


def wrapped(lines, times, width):
    """Lines of at most `width` cells, as a terminal shows them."""
    for line, time in zip(lines, times):
        for begin in range(0, max(len(line), 1), width):
            yield line[begin:begin + width], time


def spans(line):
    parts = []
    for character, style in line:
        if parts and parts[-1][1] == style:
            parts[-1][0] += character
        else:
            parts.append([character, style])
    return "".join(f'<tspan style="{style}">{escape(text)}</tspan>' if style else f"<tspan>{escape(text)}</tspan>" for text, style in parts)


def draw(cast):
    header, *events = [json.loads(line) for line in cast.splitlines() if line.strip()]
    screen = Screen()
    for time, kind, data in events:
        if kind == "o":
            screen.write(time, data)
    while screen.lines and not screen.lines[-1]:
        screen.lines.pop()
    rows = list(wrapped(screen.lines, screen.times, header["width"]))[-header["height"]:]
    width, height = header["width"] * CELL + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN + BAR
    title = escape(f"{header.get('title', '')}, {SPEED} times as fast")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}" role="img" aria-label="{title}">',
           "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}",
           "@media (prefers-reduced-motion:no-preference){.l{animation:appear .01s both}@keyframes appear{from{opacity:0}to{opacity:1}}}</style>",
           f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>']
    out += [f'<circle cx="{MARGIN + 6 + 20 * i}" cy="18" r="6" fill="{color}"/>' for i, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))]
    out.append(f'<text x="{width / 2:.0f}" y="22" text-anchor="middle" style="fill:#8b949e">{title}</text>')
    for row, (line, time) in enumerate(rows):
        y = BAR + MARGIN + row * LINE + 12
        out.append(f'<text class="l" x="{MARGIN}" y="{y}" textLength="{len(line) * CELL:.1f}" lengthAdjust="spacing" style="animation-delay:{time / SPEED:.2f}s">{spans(line)}</text>'
                   if line else "")
    out.append("</svg>")
    return "\n".join(part for part in out if part) + "\n"


def main():
    source, target = sys.argv[1:]
    with open(source) as file:
        picture = draw(file.read())
    with open(target, "w") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
