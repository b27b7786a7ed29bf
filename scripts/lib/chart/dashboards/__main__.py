"""Writes the chart's Grafana dashboards as JSON.

usage: python3 -m dashboards OUTPUT_DIRECTORY

Needs the Grafana Foundation SDK in PYTHONPATH; `scripts/chart render` provides it.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import fleet, operator, trainingjob


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    for module in (fleet, trainingjob, operator):
        board = module.dashboard().build()
        path = directory / f"{board.uid}.json"
        path.write_text(json.dumps(board, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
