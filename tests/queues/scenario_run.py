"""What the tests of this directory have in common: their options, and how they run and report scenarios."""
import pathlib
import time

from kueue import HERE
from control_plane import HERE as BENCH, ROOT
from processes import Failed

DELETION = HERE / "pod_delete_stage.yaml"


def add_options(parser, scenarios):
    parser.add_argument("--bin", default=ROOT / "build" / "release" / "bin", type=pathlib.Path, metavar="DIR",
                        help="the directory with oarlock-operator (default build/release/bin)")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(one.__name__ for one in scenarios)}")
    parser.add_argument("--directory", metavar="DIR", help="write the logs there, and keep them (default: a temporary one)")


def select(parser, args, scenarios):
    """The scenarios that --only names; all by default."""
    known = {one.__name__: one for one in scenarios}
    names = args.only.split(",") if args.only else list(known)
    for name in names:
        if name not in known:
            parser.error(f"unknown name '{name}'")
    return [one for name, one in known.items() if name in names]


class ScenarioRun:
    """Runs scenarios one after the other, each in a scene of `make_scene`, and counts those that failed."""

    def __init__(self, make_scene):
        self._make_scene = make_scene
        self.failed = 0

    def run(self, scenario, *more):
        started = time.monotonic()
        scene = self._make_scene()
        try:
            scenario(scene, *more)
            found = scene.end()
        except Failed as error:
            found = str(error).splitlines()
            scene.abandon()
        result = "failed" if found else "passed"
        self.failed += bool(found)
        title = scenario.__doc__.splitlines()[0]
        print(f"{result} {time.monotonic() - started:5.1f} s  {scenario.__name__}: {title}", flush=True)
        for line in found:
            print(f"    {line}", flush=True)


def pod_stages(directory):
    file = directory / "pod_stages.yaml"
    file.write_text("\n---\n".join(stage.read_text() for stage in (BENCH / "pod_ready_stage.yaml", DELETION)))
    return file
