#!/usr/bin/env python3
"""The sections "Back to Python" and "From Python" of docs/from-python, and the code of docs/guides/torchscript.md, executed
with the Python part of the PyTorch that the trainer uses.

Of each of the five systems, a run with a moving average writes a checkpoint. The page's code loads its weights, and then
the averaged ones, into a model with the original's names (originals.py), and its code for inference makes the outputs.
The weights return to the trainer as the page shows, and its evaluation must report the same values as Python, and for
the averaged weights exactly those of the end of the run. The models themselves give the outputs of the originals.
The accuracy of the TorchScript guide's classify() is that of the trainer, for both kinds of weights.

usage: python_weights_test.py   (OARLOCK_SOURCE, OARLOCK_TORCH_DIR, and OARLOCK_BIN: the directory of the programs)
"""
import csv
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
DATA = SOURCE / "tests" / "data"
sys.path.insert(0, str(SOURCE / "tests/support"))
import torch_python  # pylint: disable=wrong-import-position


def run_with_torch():
    """Runs this program again, in a Python that can import torch, and returns its exit code."""
    with tempfile.TemporaryDirectory() as work:
        command = [torch_python.interpreter("safetensors-0.8.0", "tracking"), __file__, "inside", *sys.argv[1:]]
        return subprocess.run(command, env=torch_python.variables(work), check=False).returncode


if __name__ == "__main__" and sys.argv[1:2] != ["inside"]:
    sys.exit(run_with_torch())

# pylint: disable=wrong-import-position
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

sys.path[:0] = [str(SOURCE / "tests/bench/rival"), str(DATA)]
import originals
import sedd
from make_resnet_goldens import ResnetLike
from run_page import BIN, PAGES, TIMEOUT, write_cifar, write_perturbed_cells

EMA_LINE = "# With ema.enabled, the averaged parameters:\n"
AVERAGED = "ema={enabled: true, decay: 0.5}"
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
MASK = (1 << 64) - 1
GOLDEN_RATIO = 0x9E3779B97F4A7C15
QUERY_STREAM = 0x71756572  # kQueryStream of workloads/gears/data.cc


class SampleRandom:
    """The class of this name in trainer/data/random.h. Its first state is mix_seed(parts)."""

    def __init__(self, *parts):
        self.state = 0
        for part in parts:
            self.state = self.state + part & MASK
            self.state = self.next()

    def next(self):
        self.state = self.state + GOLDEN_RATIO & MASK
        out = self.state
        out = (out ^ out >> 30) * 0xBF58476D1CE4E5B9 & MASK
        out = (out ^ out >> 27) * 0x94D049BB133111EB & MASK
        return out ^ out >> 31

    def uniform(self):
        return (self.next() >> 40) * 2.0**-24

    def below(self, n):
        return (self.next() >> 32) * n >> 32


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def golden_of(name, *buffers):
    """Tensors, metadata, and the state_dict of the original."""
    path = DATA / f"{name}.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    prefixes = ("weight.", *buffers)
    return tensors, metadata, {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith(prefixes)}


# ---- the five systems ------------------------------------------------------------------------------------------------
# Of each: SETTINGS of a small run of the page's configuration, the names that the page's code uses, and what the trainer
# reports and Python computes, as a list of numbers.


class Gears:
    SETTINGS = ["epochs=1", "batch.size=8", "model.hidden_size=8", "data.go_graph=go.csv", "data.coexpress_graph=genes.csv",
                "predict={perturbations: [G01, G02+G07], file: reported.csv, control_cells: 5}"]

    def write(self, directory):
        write_perturbed_cells(directory)
        names = sorted(json.loads((directory / "gene2go.json").read_text()))
        for file, distance in (("go.csv", 1), ("genes.csv", 3)):
            edges = [f"{name},{names[i - distance]},{0.2 + i % 5 / 10}" for i, name in enumerate(names)]
            (directory / file).write_text("\n".join(["source,target,importance", *edges]) + "\n")

    def names(self, directory):
        """Sizes and order come from the checkpoint, graphs from the files, and a cell from the converted data."""
        with safe_open(directory / "models/gears_ddp/best/model.safetensors", "pt") as file:
            settings = json.loads(file.metadata()["inference"])

        def graph(file, names):
            rows = rows_of(directory / file)
            edges = torch.tensor([[names.index(row[end]) for row in rows] for end in ("source", "target")])
            return originals.normalized_graph(edges, torch.tensor([float(row["importance"]) for row in rows]), len(names))

        genes, perturbations = settings["genes"], settings["perturbations"]
        model = originals.Gears(len(genes), len(perturbations), 8, graph("genes.csv", genes), graph("go.csv", perturbations))
        self.cells = self.control_cells(directory, len(genes))
        return {"gears_model": types.SimpleNamespace(best_model=model, gene_list=genes, pert_list=perturbations)}

    @staticmethod
    def control_cells(directory, genes):
        """The cells that the trainer draws for its predictions."""
        (store,) = (directory / "perturb_processed.h5ad.oarlock").glob("cells-*")
        values, columns, begin, condition = (np.fromfile(store / name, kind) for name, kind in (
            ("values.f32", "<f4"), ("columns.i32", "<i4"), ("begin.i64", "<i8"), ("condition.i32", "<i4")))
        expression = torch.zeros(len(condition), genes)
        for cell, (first, last) in enumerate(zip(begin, begin[1:])):
            expression[cell, columns[first:last]] = torch.from_numpy(values[first:last])
        names = [entry["name"] for entry in json.loads((store / "about.json").read_text())["conditions"]]
        control = expression[condition == names.index("ctrl")]
        random = SampleRandom(SampleRandom(1, QUERY_STREAM).state, 0)
        return control[[random.below(len(control)) for _ in range(5)]]

    def reported(self, directory, _lines):
        return [float(row[gene]) for row in rows_of(directory / "reported.csv") for gene in list(row)[1:]]

    def computed(self, names):
        """The means over control cells. A batch is one cell, because the original's others miss the co-expression."""
        model, known = names["gears_model"].best_model.eval(), names["settings"]["perturbations"]
        out = []
        for genes in (["G01"], ["G02", "G07"]):
            predicted = [model(cell[None], [[known.index(gene) for gene in genes]]) for cell in self.cells]
            out += torch.cat(predicted).mean(0).tolist()
        return out


class Comformer:
    CRYSTALS = ["srtio3", "k2o2"]  # the golden's batch
    SETTINGS = ["epochs=1", "batch.size=4", "data={path: crystals.json, target_property: gap, exact_ties: true}",
                "model={name: iComformer, node_features: 32, edge_features: 40, triplet_input_features: 24, fc_features: 20}",
                "test.predictions=reported.csv"]

    def write(self, directory):
        crystals = []
        for i in range(30):
            tensors = load_file(DATA / f"comformer_graph_{self.CRYSTALS[i % 2]}.safetensors")
            crystals.append({"lattice": tensors["lattice"].tolist(), "numbers": tensors["atomic_numbers"].tolist(),
                             "cart_coords": tensors["cart_coords"].tolist(), "gap": i * i % 7 / 2})
        (directory / "crystals.json").write_text(json.dumps(crystals))

    def names(self, _directory):
        tensors = load_file(DATA / "comformer_icomformer.safetensors")
        return {"net": originals.Icomformer(32, 40, 24, 20),
                "batch": [tensors[name] for name in ("x", "edge_index", "edge_attr", "edge_nei", "batch")]}

    def reported(self, directory, _lines):
        self.numbers = [int(row["id"]) for row in rows_of(directory / "reported.csv")]
        return [float(row["prediction"]) for row in rows_of(directory / "reported.csv")]

    def computed(self, names):
        return [names["labels"][number % 2].item() for number in self.numbers]


class QuantumGrav:
    SETTINGS = ["epochs=1", "batch.size=8", "data.node_features=[in_degree, out_degree]", "eval.rows_file=reported.csv",
                "model.blocks=[{conv: sage, root_weight: false, out: 10}, {conv: sage, root_weight: false, out: 8}]",
                "model.tasks=[{name: manifold_like, classes: [5, 7], outputs: 2, hidden: [48, 18]}, "
                "{name: elements, target: cset_size, loss: mse, outputs: 1, hidden: [48, 18], weight: 0.001}]"]
    SAMPLES, ELEMENTS = 60, 12

    def write(self, directory):
        random = np.random.default_rng(1)
        sizes = random.integers(6, self.ELEMENTS + 1, self.SAMPLES)
        self.links = np.triu(random.random((self.SAMPLES, self.ELEMENTS, self.ELEMENTS)) < 0.3, 1)
        self.sizes = sizes
        for links, size in zip(self.links, sizes):
            links[size:], links[:, size:] = False, False
        arrays = {"link_matrix": self.links.astype("u1"), "cset_size": sizes.astype("<i4"),
                  "manifold_like": (5 + np.arange(self.SAMPLES) % 2 * 2).astype("<i4")}
        store = directory / "sets.zarr"
        store.mkdir()
        (store / ".zgroup").write_text('{"zarr_format": 2}')
        for name, array in arrays.items():
            (store / name).mkdir()
            about = {"zarr_format": 2, "shape": array.shape, "chunks": array.shape, "dtype": array.dtype.str, "order": "C",
                     "compressor": None, "filters": None, "fill_value": 0}
            (store / name / ".zarray").write_text(json.dumps(about))
            (store / name / ".".join("0" * array.ndim)).write_bytes(array.tobytes())

    def names(self, _directory):
        """All graphs as one batch."""
        inside = np.arange(self.ELEMENTS) < self.sizes[:, None]
        sample, source, target = self.links.nonzero()
        number = np.cumsum(inside.ravel()).reshape(inside.shape) - 1  # of an element in the batch
        return {"model": originals.QuantumGrav([2, 10, 8], ["mean", "sum"], [[48, 18, 2], [48, 18, 1]]),
                "features": {"out_degree": torch.from_numpy(self.links.sum(2)[inside]).float(),
                             "in_degree": torch.from_numpy(self.links.sum(1)[inside]).float()},
                "edge_index": torch.from_numpy(np.stack([number[sample, source], number[sample, target]])),
                "batch": torch.from_numpy(np.arange(self.SAMPLES).repeat(self.sizes))}

    def reported(self, directory, _lines):
        rows = rows_of(directory / "reported.csv")
        self.evaluated = [int(float(row["sample"])) for row in rows]
        return [float(row[name]) for row in rows for name in ("manifold_like_0", "manifold_like_1", "elements")]

    def computed(self, names):
        outputs = names["outputs"]
        assert names["settings"]["classes"] == {"manifold_like": [5, 7]}, names["settings"]
        return torch.cat([outputs["manifold_like"], outputs["elements"]], 1)[self.evaluated].flatten().tolist()


class TrainingEngine:
    SETTINGS = PAGES["training-engine"]["overrides"].split()

    def write(self, directory):
        write_cifar(directory)

    def names(self, directory):
        records = np.fromfile(directory / "data" / "test_batch.bin", "u1").reshape(-1, 1 + 3 * 32 * 32)
        self.labels = torch.from_numpy(records[:, 0].astype("i8"))
        return {"model": ResnetLike(3, 4, 10), "pixels": torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32))}

    def reported(self, _directory, lines):
        return [lines[-1][name] for name in ("loss", "accuracy")]

    def computed(self, names):
        logits = names["logits"]
        return [torch.nn.functional.cross_entropy(logits, self.labels).item(),
                (logits.argmax(1) == self.labels).float().mean().item()]


class Score(sedd.Sedd):
    """The original's module: its forward() returns the logarithm of the score."""

    def forward(self, indices, sigma):
        return self.log_score(indices, sigma)


class Sedd:
    SEQUENCES = ["ACDEFGHIKLMNPQRSTVWY"[i:i + 8] * 2 for i in range(10)]
    SIZES = {"hidden_size": 16, "n_heads": 2, "n_blocks": 2, "cond_dim": 8, "length": 16}
    SETTINGS = ["steps=4", "batch.size=2", "optimizer.lr=0.01", "schedule={name: constant}", "noise={type: loglinear}",
                "curriculum.enabled=false", "amp.enabled=false", "sampling={samples: 0}",
                "data={path: train.fasta, eval_path: eval.fasta, min_length: 4}", *(f"model.{k}={v}" for k, v in SIZES.items())]

    def write(self, directory):
        for name, sequences in (("train.fasta", self.SEQUENCES[4:]), ("eval.fasta", self.SEQUENCES[:6])):
            (directory / name).write_text("".join(f">{i}\n{sequence}\n" for i, sequence in enumerate(sequences)))

    def names(self, _directory):
        vars(sedd).update(TOKENS=36, LENGTH=16, WIDTH=16, CONDITION=8, BLOCKS=2, HEADS=2)
        return {"score_model": Score(), "sequences": self.SEQUENCES[:6], "sigma": torch.full([6], 0.5)}

    def reported(self, _directory, lines):
        return [lines[-1]["loss"]]

    def computed(self, names):
        """The loss with the trainer's noise, which depends on the seed 42 and the number of the sequence."""
        rows = []
        for number in range(6):
            random = SampleRandom(42, number)
            random.uniform()
            spread = SampleRandom(42).state + number * GOLDEN_RATIO & MASK
            rows.append([(spread >> 40) * 2.0**-24, *(random.uniform() for _ in range(16))])
        return [sedd.Sedd.forward(names["score_model"], torch.tensor(rows), names["tokens"]).item()]


SYSTEMS = {"gears": Gears, "comformer": Comformer, "quantumgrav": QuantumGrav, "training-engine": TrainingEngine,
           "uniref50-sedd": Sedd}


class PythonWeights(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.directory = pathlib.Path(work.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)

    def train(self, *arguments):
        """Returns the lines `evaluation` of the log."""
        environment = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        command = [BIN / "oarlock-trainer", "--log-format", "json", "threads=1", "loader.threads=1", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr[-3000:])
        lines = [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if line.startswith("{")]
        return [line for line in lines if line["msg"] == "evaluation"]

    def check(self, page):
        text = (SOURCE / "docs" / "from-python" / f"{page}.md").read_text()
        load, infer, convert = re.findall(r"^```python\n(.*?)^```$", text.split("## Back to Python\n")[1], re.M | re.S)
        self.assertEqual(load.count(EMA_LINE), 1)
        self.assertLessEqual(len(load.splitlines()), 5)
        self.assertEqual(len(convert.splitlines()), 1)
        (file, converts_checkpoint), = re.findall(r'torch\.load\("(.*?)", map_location="cpu"\)(\["model"\])?', convert)
        system = SYSTEMS[page]()
        system.write(self.directory)
        settings = ["--config", SOURCE / PAGES[page]["config"], *system.SETTINGS]
        at_the_end = system.reported(self.directory, self.train(*settings, AVERAGED))
        names = system.names(self.directory)
        values = []
        for part in load.split(EMA_LINE):
            exec(part, names)  # pylint: disable=exec-used
            model = names["gears_model"].best_model if page == "gears" else next(
                names[name] for name in ("net", "model", "score_model") if name in names)
            torch.save({"model": model.state_dict()} if converts_checkpoint else model.state_dict(), file)
            exec(convert, {"torch": torch, "save_file": save_file})  # pylint: disable=exec-used
            lines = self.train(*settings, "epochs=", "steps=0", "schedule={name: constant}", "ema.enabled=false",
                               "pretrained.path=weights.safetensors", f"checkpoint.dir=again-{len(values)}")
            values.append(system.reported(self.directory, lines))
            with torch.no_grad():
                exec(infer, names)  # pylint: disable=exec-used
                computed = system.computed(names)
            torch.testing.assert_close(torch.tensor(computed), torch.tensor(values[-1]), rtol=2e-5, atol=2e-5)
        self.assertEqual(values[1], at_the_end)
        self.assertGreater((torch.tensor(values[0]) - torch.tensor(values[1])).abs().max(), 1e-3)

    def test_gears(self):
        self.check("gears")

    def test_comformer(self):
        self.check("comformer")

    def test_quantumgrav(self):
        self.check("quantumgrav")

    def test_training_engine(self):
        self.check("training-engine")

    def test_uniref50_sedd(self):
        self.check("uniref50-sedd")


    def test_torchscript_guide(self):
        text = (SOURCE / "docs" / "guides" / "torchscript.md").read_text()
        save, load = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        (load_averaged,) = re.findall(r"`(model\.load_state_dict\(\{\*\*[^`]*)`", text)
        images, labels = (np.frombuffer(gzip.decompress((FASHION_MNIST / f"t10k-{name}-ubyte.gz").read_bytes()), "u1")
                          for name in ("images-idx3", "labels-idx1"))
        images = torch.from_numpy(images[16:].reshape(-1, 1, 28, 28)[:1000].copy())
        names = {}
        torch.manual_seed(0)
        exec(save, names)  # pylint: disable=exec-used
        accuracies = []
        for average in (["ema.enabled=false"], [AVERAGED]):
            shutil.rmtree("run", ignore_errors=True)
            lines = self.train("task=image_classification", f"data={{path: {FASHION_MNIST}, eval_samples: 1000}}",
                               "model={name: torchscript, path: model.pt}", "steps=6", "batch.size=32", "checkpoint.dir=run", *average)
            exec(load, names)  # pylint: disable=exec-used
            if average == [AVERAGED]:
                exec(load_averaged, names)  # pylint: disable=exec-used
            with torch.no_grad():
                accuracies.append((names["classify"](images).numpy() == labels[8:1008]).mean())
            self.assertAlmostEqual(accuracies[-1], lines[-1]["accuracy"], delta=0.0011)  # one image may be on the border
        self.assertGreater(abs(accuracies[0] - accuracies[1]), 0.005)


class Models(unittest.TestCase):
    """The models of these tests are those of the originals: same names and shapes, same outputs."""

    def expect_close(self, output, expected):
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=5e-6)

    def test_gears(self):
        tensors, metadata, state = golden_of("gears_model_plain", "buffer_after.")
        graphs = [originals.normalized_graph(tensors[f"G_{name}"], tensors[f"G_{name}_weight"], nodes)
                  for name, nodes in (("coexpress", 60), ("go", 59))]
        model = originals.Gears(60, 59, 12, *graphs).eval()
        model.load_state_dict(state)
        perturbed = [[gene for gene in genes if gene >= 0] for genes in json.loads(metadata["config"])["pert_idx"]]
        self.expect_close(model(tensors["x"], perturbed), tensors["eval_pred"])

    def test_comformer(self):
        tensors, _, state = golden_of("comformer_icomformer", "buffer_after.")
        state |= {name: tensors[f"buffer_before.{name}"] for name in ("rbf.0.centers", "rbf_angle.0.centers")}
        model = originals.Icomformer(32, 40, 24, 20).eval()
        model.load_state_dict(state)
        batch = [tensors[name] for name in ("x", "edge_index", "edge_attr", "edge_nei", "batch")]
        self.expect_close(model(batch), tensors["eval_output"])

    def test_quantumgrav(self):
        tensors, _, state = golden_of("causal_set_sage", "buffer_after.")
        model = originals.QuantumGrav([6, 10, 10, 8], ["mean", "max", "sum"], [[9, 3], [7, 1]]).eval()
        model.load_state_dict(state)
        for head, output in enumerate(model(*(tensors[name] for name in ("x", "edge_index", "batch")))):
            self.expect_close(output, tensors[f"eval_output.{head}"])

    def test_sedd(self):
        tensors, _, state = golden_of("sedd_absorb_loglinear", "buffer.")
        vars(sedd).update(TOKENS=25, LENGTH=24, WIDTH=48, CONDITION=32, BLOCKS=2, HEADS=4)
        model = sedd.Sedd().eval()
        model.load_state_dict(state)
        self.expect_close(model.log_score(tensors["xt"], tensors["sigma"]), tensors["log_score"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
