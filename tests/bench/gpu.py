#!/usr/bin/env python3
"""On a machine with a GPU: bitwise resume, and the step time of the engine compared with PyTorch. A bundle's `run` starts it."""
import argparse
import datetime
import filecmp
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from figures import Figure, table, write_json

HERE = pathlib.Path(__file__).resolve().parent
RESUME = """\
task: tiny
seed: 3
steps: {steps}
device: cuda
batch: {{size: 16}}
optimizer: {{name: adamw, lr: 0.01}}
checkpoint: {{dir: {directory}, every_steps: 10, keep: 1}}
cuda: {{deterministic: true, graphs: {graphs}}}
data: {{samples: 256}}
"""
STEP = """\
task: bench
steps: {steps}
device: cuda
batch: {{size: {batch}}}
optimizer: {{name: adamw, lr: 0.001}}
loader: {{threads: 2, pin_memory: true}}
log: {{every_steps: {log}}}
eval: {{every_epochs: 0}}
cuda: {{graphs: {graphs}, channels_last: {last}}}
data: {{samples: {samples}}}
model: {{name: {model}}}
"""
# Model, batch, channels_last
CASES = [("small", 32, False), ("mlp", 512, False), ("cnn", 512, True), ("resnet", 256, True)]
STEPS, LOG, SAMPLES = 600, 100, 8192


class Failed(Exception):
    pass


def run(command):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done


def weights(directory):
    files = sorted(pathlib.Path(directory).rglob("*.safetensors"))
    if not files:
        raise Failed(f"no checkpoint was written to {directory}")
    return {file.name: file for file in files}


def resume(program, directory, graphs):
    """A run of 40 steps and two runs of 20 steps write the same bytes."""

    def train(name, steps):
        config = directory / f"{name}-{steps}.yaml"
        config.write_text(RESUME.format(steps=steps, directory=directory / name, graphs=graphs))
        run([program, "--config", config])

    train(f"whole-{graphs}", 40)
    train(f"halves-{graphs}", 20)
    train(f"halves-{graphs}", 40)
    whole, halves = weights(directory / f"whole-{graphs}"), weights(directory / f"halves-{graphs}")
    different = [name for name in whole if name not in halves or not filecmp.cmp(whole[name], halves[name], False)]
    if different:
        raise Failed(f"after a resume (graphs: {graphs}) these differ: {', '.join(different)}")
    print(f"resumed bit by bit, graphs: {graphs} ({len(whole)} files)")


def seconds_per_step(log):
    """Between the first and the last line of progress: each was written when the device had reached its step."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    at = [(line["step"], datetime.datetime.fromisoformat(line["ts"].replace("Z", "+00:00"))) for line in lines
          if line["msg"] == "step" and line["step"] % LOG == 0]
    if len(at) < 3:
        raise Failed(f"the log has too few steps:\n{log[-2000:]}")
    (first, begin), (last, end) = at[1], at[-1]
    return (end - begin).total_seconds() / (last - first)


def step_figures(args, directory):
    """Interleaved by pair: our runs, each a process, and then PyTorch's, all in one process, which starts slowly."""
    cases = {f"{model}:{batch}:{graphs:d}:{last:d}": (model, batch, graphs, last)
             for model, batch, last in CASES for graphs in (False, True)}
    figures = {case: Figure(f"step, {model}, {'graph' if graphs else 'eager'}", "ms", 1.0)
               for case, (model, _, graphs, _) in cases.items()}
    config = directory / "step.yaml"
    for _ in range(args.pairs):
        ours = {}
        for case, (model, batch, graphs, last) in cases.items():
            config.write_text(STEP.format(steps=STEPS, batch=batch, log=LOG, graphs=str(graphs).lower(),
                                          last=str(last).lower(), samples=SAMPLES, model=model))
            log = run([args.bin / "oarlock-bench-trainer", "--config", config, "--log-format", "json"]).stderr
            ours[case] = seconds_per_step(log)
        rival = run([args.python, HERE / "gpu_step.py", *cases, "--steps", STEPS // 2, "--samples", SAMPLES]).stdout
        for line in map(json.loads, rival.splitlines()):
            figures[line["case"]].add(ours[line["case"]] * 1e3, line["seconds"] * 1e3)
    return list(figures.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--resume", action="store_true", help="only the test of resuming")
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oarlock-gpu-") as name:
        directory = pathlib.Path(name)
        if args.resume:
            for graphs in ("false", "true"):
                resume(args.bin / "oarlock-test-trainer", directory, graphs)
            return
        figures = step_figures(args, directory)
    print(table(figures))
    if args.json:
        write_json(args.json, figures, {"pairs": args.pairs})


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"error: {error}")
