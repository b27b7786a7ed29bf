#!/usr/bin/env python3
"""Runs the examples of a page of docs/from-python.

usage: run_page.py comformer|gears|quantumgrav|training-engine|uniref50-sedd

Every block ```sh runs unchanged, in a temporary directory with small data. A stand-in for oarlock-trainer checks the command
line of the page, and then trains with OVERRIDES appended, which reduce the sizes. A block with the lines "# node 0" and
"# node 1" runs on two hosts, that is in two network namespaces with the addresses of the page. Each training must complete
with the requested number of ranks and with equal parameters.
Every block ```yaml, and every KEY=VALUE and every `section: {...}` in the tables, must be a valid configuration.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
TIMEOUT = 300
HOSTS = {"0": "192.168.1.100", "1": "192.168.1.101"}


def write_cifar(directory):
    """Images of one color for each class, in CIFAR's binary format."""
    (directory / "data").mkdir()
    record = lambda label: bytes([label]) + b"".join(bytes([20 * label + channel] * 1024) for channel in range(3))
    records = b"".join(record(i % 10) for i in range(24))
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (directory / "data" / f"{name}.bin").write_bytes(records)


def link_proteins(directory):
    (directory / "uniref50.fasta.gz").symlink_to("/usr/share/doc/mmseqs2/example-data/QUERY.fasta.gz")


def write_causal_sets(directory):
    subprocess.run([BIN / "oarlock-causal-sets", directory / "sets.zarr", "--samples", "48", "--min-elements", "8", "--max-elements", "16"],
                   check=True)


def write_perturbed_cells(directory):
    subprocess.run([BIN / "oarlock-planted-cells", directory], check=True, stdout=subprocess.DEVNULL)
    (directory / "cells.h5ad").rename(directory / "perturb_processed.h5ad")


def write_crystals(directory):
    subprocess.run([BIN / "oarlock-crystals", directory / "crystals.extxyz", "--count", "60"], check=True)


PAGES = {
    "comformer": {
        "config": "examples/comformer/large.yaml",
        "data": write_crystals,
        "overrides": "threads=1 loader.threads=1 epochs=1 batch.size=4 eval.batch_size=8 data.max_neighbors=4 "
        "model.conv_layers=2 model.node_features=8 model.edge_features=8 model.fc_features=8",
    },
    "gears": {
        "config": "examples/gears/simulation.yaml",
        "data": write_perturbed_cells,
        "overrides": "threads=1 loader.threads=1 epochs=1 batch.size=8 model.hidden_size=8 checkpoint.dir=checkpoints",
    },
    "quantumgrav": {
        "config": "examples/causal_set/diamonds.yaml",
        "data": write_causal_sets,
        "overrides": "threads=1 loader.threads=1 device=cpu epochs=1 batch.size=8 eval.batch_size=8 testing.batch_size=8 "
        "checkpoint.dir=checkpoints",
    },
    "training-engine": {
        "config": "examples/image_classification/cifar10.yaml",
        "data": write_cifar,
        "overrides": "threads=1 loader.threads=1 epochs=1 model.width=4 batch.size=4 eval.batch_size=8",
    },
    "uniref50-sedd": {
        "config": "examples/protein_diffusion/uniref50.yaml",
        "data": link_proteins,
        "overrides": "threads=1 loader.threads=1 steps=3 batch.size=2 schedule.warmup_steps=1 model.hidden_size=16 "
        "model.n_heads=2 model.n_blocks=1 model.cond_dim=8 model.length=16 data.eval_sequences=8 eval.batch_size=8 "
        "sampling.samples=2 sampling.steps=2",
    },
}


def blocks_of(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def settings_of(yaml):
    """One KEY=VALUE for each top-level line of a block in flow style."""
    lines = [re.sub(r"\s+#.*", "", line) for line in yaml.splitlines()]
    return [re.sub(r"^(\w+): *", r"\1=", line) for line in lines if line and not line.startswith("#")]


class Page:
    def __init__(self, name, work):
        self.page = PAGES[name]
        self.text = (SOURCE / "docs" / "from-python" / f"{name}.md").read_text()
        self.work = work
        (work / "bin").mkdir()
        for program in ("oarlock", "oarlock-crystals", "oarlock-causal-sets"):
            (work / "bin" / program).symlink_to(BIN / program)
        stand_in = work / "bin" / "oarlock-trainer"
        stand_in.write_text(
            f"#!/bin/sh\n{BIN}/oarlock-trainer \"$@\" --check >/dev/null || exit\n"
            f"exec {BIN}/oarlock-trainer \"$@\" {self.page['overrides']} --log-format json\n"
        )
        stand_in.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{work}/bin:{os.environ['PATH']}"}
        self.directories = 0

    def directory(self):
        self.directories += 1
        directory = self.work / str(self.directories)
        directory.mkdir()
        (directory / "examples").symlink_to(SOURCE / "examples")
        self.page["data"](directory)
        return directory

    def check(self, settings, what):
        command = [BIN / "oarlock-trainer", "--check", "--config", SOURCE / self.page["config"], *settings]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{what}: {done.stderr}"

    def check_settings(self):
        """Gives how many pieces of configuration there were."""
        count = 0
        for block in blocks_of(self.text, "yaml"):
            if block.startswith("task:"):
                path = self.work / "whole.yaml"
                path.write_text(block)
                done = subprocess.run([BIN / "oarlock-trainer", "--check", "--config", path], capture_output=True, text=True)
                assert done.returncode == 0, f"{done.stderr}{block}"
            else:
                self.check(settings_of(block), block)
            count += 1
        for code in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", self.text, flags=re.M | re.S)):
            if re.fullmatch(r"\w+: \{.*\}", code):
                self.check(settings_of(code), code)
            elif re.fullmatch(r"([a-z_]+\.)*[a-z_]+=[^ ()]+( ([a-z_]+\.)*[a-z_]+=\S+)*", code) and code.split("=")[0] in self.keys:
                self.check([part.replace("DIR", "/tmp") for part in code.split()], code)
            else:
                continue
            count += 1
        return count

    @functools.cached_property
    def keys(self):
        """Keys as on a command line: a heading `section` and the rows of its table."""
        reference = subprocess.run([BIN / "oarlock-trainer", "--print-reference"], capture_output=True, text=True).stdout
        keys, section = set(), ""
        for line in reference.splitlines():
            if heading := re.match(r"#+ `([\w.]+)`", line):
                section = heading[1] + "."
            elif line.startswith("## "):
                section = ""
            elif row := re.match(r"\| `(\w+)` \|", line):
                keys.add(section + row[1])
        return keys

    def start(self, script, directory, host=None):
        prefix = ["ip", "netns", "exec", f"node{host}"] if host else []
        return subprocess.Popen([*prefix, "bash", "-euo", "pipefail", "-c", script], cwd=directory, env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, block):
        directory = self.directory()
        nodes = re.split(r"^# node (\d)\n", block, flags=re.M)
        started = [self.start(script, directory, host) for host, script in zip(nodes[1::2], nodes[2::2])]
        processes = started or [self.start(block, directory)]
        outputs = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
        output = "".join(outputs)
        assert all(process.returncode == 0 for process in processes), f"{block}\n{output}"
        lines = [json.loads(line[line.index("{"):]) for line in output.splitlines() if re.match(r"(\[RANK \d+\] )?\{", line)]
        logged = lambda message: [line for line in lines if line["msg"] == message]
        commands = [line for line in block.splitlines() if "oarlock-trainer" in line]
        expected = [ranks_of(line) for line in (commands[:1] if started else commands)]
        trained = logged("training is complete")
        assert len(trained) == len(expected), f"{block}\n{output}"
        for line, plan, ranks in zip(trained, logged("batches and learning rate"), expected):
            assert ranks in (None, line["world_size"]) and plan["world_size"] == line["world_size"], f"{block}\n{line}"
            assert line["parameters_bitwise_equal"] and line["samples_per_second"] > 0, line
            assert plan["effective_batch"] % plan["world_size"] == 0 and plan["learning_rate"] > 0, plan
            print(f"ok: {line['world_size']} ranks: {block.splitlines()[-1]}", flush=True)


def ranks_of(command):
    """None where the machine decides."""
    def number(flag):
        found = re.search(rf"{flag} (\S+)", command)
        return (int(found[1]) if found[1].isdigit() else None) if found else 1
    nproc, nnodes = number("--nproc"), number("--nnodes")
    return None if nproc is None else nproc * nnodes


def make_hosts():
    """Network namespaces node0 and node1, connected, with the addresses of the pages."""
    commands = ["mount -t tmpfs tmpfs /run", "mkdir -p /run/netns", "ip link set lo up"]
    commands += [f"ip netns add node{host}" for host in HOSTS]
    commands += ["ip link add veth0 netns node0 type veth peer name veth1 netns node1"]
    for host, address in HOSTS.items():
        commands += [f"ip -n node{host} link set lo up", f"ip -n node{host} addr add {address}/24 dev veth{host}",
                     f"ip -n node{host} link set veth{host} up"]
    for command in commands:
        subprocess.run(command.split(), check=True)


def main():
    if sys.argv[-1] != "inside":
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child",
                              *sys.argv, "inside"])
    make_hosts()
    with tempfile.TemporaryDirectory() as work:
        page = Page(sys.argv[1], pathlib.Path(work))
        count = page.check_settings()
        print(f"ok: {count} pieces of configuration", flush=True)
        commands = blocks_of(page.text, "sh")
        assert count > 10 and len(commands) > 4, "the page is not read as it should be"
        for block in commands:
            page.run(block)


if __name__ == "__main__":
    main()
