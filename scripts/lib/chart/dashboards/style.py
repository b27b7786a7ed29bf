"""Colors, thresholds and value mappings that all dashboards share."""

from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import (
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
BLUE, PURPLE, GRAY = "blue", "purple", "#8e8e8e"

# Phases of a TrainingJob (docs/operator-states.md) in the order of a job's life. Their numbers are those of state_query().
STATE_COLORS = {
    "Pending": YELLOW,
    "Running": GREEN,
    "Stalled": ORANGE,
    "Restarting": PURPLE,
    "Suspended": GRAY,
    "Complete": BLUE,
    "Failed": RED,
}

# Phases of a rank (docs/metrics-trainer.md) that repeat while it trains, with the name that the legend shows.
STEP_PHASES = {
    "data_wait": ("data", ORANGE),
    "forward": ("forward", "light-blue"),
    "backward": ("backward", "dark-blue"),
    "comm": ("communication", PURPLE),
    "optimizer": ("optimizer", GREEN),
    "eval": ("evaluation", YELLOW),
    "checkpoint": ("checkpoint", RED),
    "other": ("other", GRAY),
}

# Classes of the time of accelerators (docs/guides/goodput.md).
USAGE_CLASSES = {
    "scheduling": "#F2CC0C",
    "pulling": YELLOW,
    "starting": "#FFF899",
    "rendezvous": "#DEB6F2",
    "restore": PURPLE,
    "productive": GREEN,
    "recomputed": ORANGE,
    "checkpoint": "light-blue",
    "evaluation": BLUE,
    "stalled": "#C15C17",
    "recovery": RED,
    "unreported": "#B7DBAB",
    "idle": GRAY,
}

# NVIDIA's Xid codes that training jobs meet most often; the panel shows other codes as numbers.
XID_ERRORS = {
    13: "13: graphics engine exception",
    31: "31: GPU memory page fault",
    43: "43: GPU stopped processing",
    45: "45: preemptive cleanup",
    48: "48: double-bit ECC error",
    63: "63: row remapping event",
    64: "64: row remapping failure",
    74: "74: NVLink error",
    79: "79: GPU has fallen off the bus",
    94: "94: contained ECC error",
    95: "95: uncontained ECC error",
    119: "119: GSP RPC timeout",
}


def thresholds(base: str, *steps: tuple[float, str]) -> ThresholdsConfig:
    """Thresholds in the unit of the panel: the color below the first step, and each step with its color."""
    return (
        ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=None, color=base)] + [Threshold(value=value, color=color) for value, color in steps])
    )


def value_map(results: dict[str, tuple[str, str | None]]) -> list[ValueMapping]:
    """Value -> (text, color); without a color, the thresholds choose it."""
    return [
        ValueMap(
            options={
                value: ValueMappingResult(text=text, color=color, index=index)
                for index, (value, (text, color)) in enumerate(results.items())
            }
        )
    ]


def state_numbers() -> list[ValueMapping]:
    """The values of state_query() as names of states."""
    return value_map({str(number): (name, color) for number, (name, color) in enumerate(STATE_COLORS.items(), start=1)})


def state_names() -> list[ValueMapping]:
    """The values of the label "phase" with their colors."""
    return value_map({name: (name, color) for name, color in STATE_COLORS.items()})
