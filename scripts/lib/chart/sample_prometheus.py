"""A real Prometheus that holds the series of sample_series.py. Needs Debian's package prometheus."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import sample_series

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "support"))
from reserved_port import ReservedPort  # noqa: E402

# Blocks made from OpenMetrics have no staleness markers. With a lookback just below the longest scrape interval, and
# queries at multiples of the shortest one, a series ends with its last sample nevertheless.
LOOKBACK = "29s"


@contextlib.contextmanager
def serve(cluster: str = "") -> Iterator[str]:
    """Runs Prometheus on the loopback interface and yields its URL."""
    with tempfile.TemporaryDirectory() as directory, ReservedPort() as port:
        work = pathlib.Path(directory)
        sample_series.write(work / "samples", cluster)
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", work / "samples", work / "tsdb"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (work / "prometheus.yml").write_text("global: {}\n")
        with (work / "log").open("w") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={work / 'prometheus.yml'}",
                    f"--storage.tsdb.path={work / 'tsdb'}",
                    "--storage.tsdb.retention.time=100y",
                    f"--query.lookback-delta={LOOKBACK}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(process, url, work / "log")
            yield url
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: pathlib.Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{url}/-/ready", timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Prometheus does not start: {log.read_text()}")
        time.sleep(0.1)
