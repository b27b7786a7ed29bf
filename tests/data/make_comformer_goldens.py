#!/usr/bin/env python3
"""Takes from the goldens of the original ComFormer what the tests use.

usage: make_comformer_goldens.py GOLDENS OUTPUT_FOLDER
GOLDENS holds what https://github.com/divelab/AIRS (OpenMat/ComFormer, GPL-3: run, never copied) computed with torch
2.11, torch_geometric 2.8.1, e3nn 0.6.0 and jarvis-tools 2026.6.12 on the CPU:
graph-CRYSTAL.safetensors: crystals of ase and pymatgen and the graphs that it builds (edges as edge_index and the image
of edge_index[1]; with lattice loops and 25 neighbors, without loops, with 12), and the distances that its choice saw;
MODEL.safetensors: random weights, a batch of SrTiO3 and K2O2, buffers before and after one forward pass in training
mode, the output then in evaluation mode; MODEL-float64.safetensors: output, loss (mean squared error) and gradients in
double precision, at the same weights; full-size-parameters.json; cgcnn-table.json: atom_init.json of jarvis-tools.
"""
import json
import pathlib
import sys

from safetensors import safe_open
from safetensors.torch import save_file


def read(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()


def graphs(source, target):
    for path in sorted(source.glob("graph-*.safetensors")):
        tensors, metadata = read(path)
        names = ["lattice", "atomic_numbers", "cart_coords", "lattice_vectors_image", "neighbours.distance", "neighbours.site_id_image"]
        names += [f"{variant}.{name}" for variant in ("lattice", "nolattice", "k12") for name in ("edge_index", "edge_image", "edge_attr")]
        crystal = path.stem.removeprefix("graph-")
        save_file({name: tensors[name] for name in names}, target / f"comformer_graph_{crystal}.safetensors", {"crystal": crystal})


def models(source, target):
    inputs = ["x", "edge_index", "edge_attr", "edge_nei", "batch", "target", "eval_output"]
    for model in ("icomformer", "ecomformer"):
        single, metadata = read(source / f"{model}.safetensors")
        double, _ = read(source / f"{model}-float64.safetensors")
        kept = {key: value for key, value in single.items() if key in inputs or key.startswith(("weight.", "buffer_"))}
        kept |= {"double." + key: value for key, value in double.items() if key.startswith(("grad.", "buffer_after.")) or key in ("train_output", "loss")}
        config = json.loads(metadata["config"])
        save_file(kept, target / f"comformer_{model}.safetensors", {"config": json.dumps(config["config"]), "no_grad": json.dumps(config["no_grad"])})


def parameters(source, target):
    models = json.loads((source / "full-size-parameters.json").read_text())
    compact = {name: {"total": of["total"], "parameters": [[p["name"], p["shape"], p["has_grad"]] for p in of["parameters"]]} for name, of in models.items()}
    (target / "comformer_parameters.json").write_text(json.dumps(compact) + "\n")


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    graphs(source, target)
    models(source, target)
    parameters(source, target)


main()
