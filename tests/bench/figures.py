"""What all benchmarks share: ratios of interleaved pairs, the table, the JSON."""
import dataclasses
import json
import math
import os
import platform
import statistics
import time


@dataclasses.dataclass
class Figure:
    """Ours and theirs, pair by pair, in `unit`; `goal` bounds the ratio ours / theirs (of rates: theirs / ours)."""

    name: str
    unit: str
    goal: float
    at_least: bool = False  # the goal is a lower bound: more is better
    ours: list = dataclasses.field(default_factory=list)
    theirs: list = dataclasses.field(default_factory=list)

    def add(self, ours, theirs):
        self.ours.append(ours)
        self.theirs.append(theirs)

    def ratios(self):
        return [a / b for a, b in zip(self.ours, self.theirs)]

    def interval(self):
        """The 95 % confidence interval of the median ratio, which assumes nothing about the distribution: between two of the
        sorted ratios. None if there are too few pairs (below 6)."""
        ratios = sorted(self.ratios())
        outside, tail = -1, 0.0  # so many of the lowest ratios, and of the highest, are outside
        while tail + (probability := math.comb(len(ratios), outside + 1) / 2 ** len(ratios)) <= 0.025:
            outside, tail = outside + 1, tail + probability
        return None if outside < 0 else (ratios[outside], ratios[-1 - outside])

    def reached(self):
        ratio = statistics.median(self.ratios())
        return ratio >= self.goal if self.at_least else ratio <= self.goal

    def to_json(self):
        ratios = self.ratios()
        return {
            "name": self.name,
            "unit": self.unit,
            "goal": self.goal,
            "goal_is": "at least" if self.at_least else "at most",
            "reached": self.reached(),
            "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "interval_95": self.interval()},
            "pairs": [{"ours": a, "theirs": b} for a, b in zip(self.ours, self.theirs)],
        }


def number(value):
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4g}" if 0.9 <= value < 1.1 else f"{value:.3g}"  # a ratio near 1


COLUMNS = ("figure", "ours", "theirs", "ratio", "min-max", "95 %", "goal", "")


def row(figure):
    ratios = figure.ratios()
    return (
        figure.name,
        f"{number(statistics.median(figure.ours))} {figure.unit}",
        f"{number(statistics.median(figure.theirs))} {figure.unit}",
        number(statistics.median(ratios)),
        f"{number(min(ratios))}-{number(max(ratios))}",
        "-".join(map(number, figure.interval() or ())),
        f"{'>=' if figure.at_least else '<='} {figure.goal:g}",
        "reached" if figure.reached() else "missed",
    )


def table(figures):
    rows = [COLUMNS, *(row(figure) for figure in figures)]
    widths = [max(len(line[i]) for line in rows) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in rows)


def machine():
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "processor": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                           if line.startswith("model name")), platform.processor()),
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write_json(path, figures, extra):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), **extra, "figures": [figure.to_json() for figure in figures]}, file, indent=1)
        file.write("\n")
