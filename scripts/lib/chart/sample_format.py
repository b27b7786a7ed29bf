"""Sample series in the OpenMetrics format, and the hour that they cover."""

import math
from collections import defaultdict
from collections.abc import Iterator

START = 1767780000  # 2026-01-07 10:00:00 UTC, so that the hour is within one block of Prometheus
DURATION = 3600
LEAD = 600  # before START, so that the first rates have a full window
RANK_INTERVAL, OPERATOR_INTERVAL = 15, 30  # the chart's scrape intervals

WAIT_BUCKETS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)

Labels = dict[str, str]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]


class Series:
    """Samples by metric and labels, in the order of their times."""

    def __init__(self, common: Labels) -> None:
        self.common = common
        self.samples: Samples = defaultdict(list)

    def add(self, metric: str, labels: Labels, time: float, value: float) -> None:
        self.samples[metric, tuple(sorted({**self.common, **labels}.items()))].append((time, value))

    def histogram(
        self, metric: str, labels: Labels, time: float, bounds: tuple[float, ...], center: float, count: float
    ) -> None:
        """A histogram with `count` observations, log-normally distributed around `center`."""
        for bound in (*bounds, math.inf):
            share = 1.0 if bound == math.inf else 0.5 * (1 + math.erf(math.log(bound / center) / 0.5))
            self.add(
                f"{metric}_bucket", {**labels, "le": "+Inf" if bound == math.inf else f"{bound:g}"}, time, round(count * share)
            )
        self.add(f"{metric}_sum", labels, time, count * center * 1.1)
        self.add(f"{metric}_count", labels, time, round(count))

    def lines(self) -> Iterator[str]:
        for (metric, labels), samples in sorted(self.samples.items()):
            matchers = ",".join(f'{key}="{value}"' for key, value in labels)
            name = f"{metric}{{{matchers}}}"
            for time, value in samples:
                yield f"{name} {value:.10g} {time:.3f}\n"
        yield "# EOF\n"
