#!/usr/bin/env python3
"""Writes comformer_fractional.safetensors: crystals in jarvis' form, and the graphs that the original ComFormer builds of them.

usage: make_comformer_fractional.py ORIGINAL OUTPUT_FOLDER
ORIGINAL is the directory OpenMat/ComFormer of https://github.com/divelab/AIRS (949e70b, GPL-3: run, never copied). Needs torch 2.11,
numpy 2.4.6, pandas and jarvis-tools 2026.6.12; numpy's OpenBLAS chooses kernels by the CPU, and a CPU with fused multiply-add
is required.

The atoms are inside the cell, because jarvis loses neighbors of others, at simple fractions of a cell that has no symmetry but
inversion, so that most distances occur twice, and rounding decides which neighbors are the nearest 25. Of crystal N: N.lattice, N.coordinates and N.cartesian as in
Atoms.to_dict(); N.edges, source, destination and image of the destination; N.vectors of the edges; N.lattice_vectors.
"""
import pathlib
import sys
import types

import numpy
import torch
from jarvis.core.atoms import Atoms
from safetensors.torch import save_file

KINDS = {"one": (1, False), "few": (3, False), "many": (6, False), "cartesian": (4, True)}  # atoms, Cartesian coordinates
EACH = 8


def load_original(directory):
    """Its module graphs; what it imports but does not need here is replaced by nothing."""
    for name, member in (("data", "Data"), ("transforms", "LineGraph"), ("data.batch", "Batch"), ("", "")):
        module = types.ModuleType("torch_geometric" + (name and "." + name))
        setattr(module, member or "nothing", None)
        sys.modules[module.__name__] = module
    sys.path.insert(0, directory)
    from comformer import graphs

    return graphs


def crystal(random, atoms, cartesian):
    lattice = random.normal(size=(3, 3)) * 0.6 + numpy.diag(random.uniform(3, 6, 3))
    fractions = random.integers(0, 12, size=(atoms, 3)) / 12
    coordinates = (fractions + random.choice([0, 0.123456789])) % 1
    return lattice, coordinates @ lattice if cartesian else coordinates


def main():
    graphs = load_original(sys.argv[1])
    random, out = numpy.random.default_rng(0), {}
    for kind, (atoms, cartesian) in KINDS.items():
        done = 0
        while done < EACH:
            lattice, coordinates = crystal(random, atoms, cartesian)
            structure = Atoms(lattice_mat=lattice.tolist(), coords=coordinates.tolist(), elements=["Si"] * atoms, cartesian=cartesian)
            apart = [neighbor[2] for of_site in structure.get_all_neighbors(r=4) for neighbor in of_site]
            if not apart or min(apart) < 0.5:
                continue  # atoms at one place
            edges, *three = graphs.nearest_neighbor_edges_submit(atoms=structure, cutoff=4.0, max_neighbors=25, use_canonize=True, use_lattice=True)
            u, v, vectors, _, _, lattice_vectors = graphs.build_undirected_edgedata(structure, edges, *three)
            # The image of each edge: an edge and its reverse follow each other.
            images = [list(map(int, image)) for between in edges.values() for image in between]
            both = [sign for image in images for sign in (image, [-n for n in image])]
            name = f"{kind}-{done}"
            out[f"{name}.lattice"] = torch.tensor(lattice)
            out[f"{name}.coordinates"] = torch.tensor(coordinates)
            out[f"{name}.cartesian"] = torch.tensor(cartesian)
            out[f"{name}.edges"] = torch.cat([u[:, None], v[:, None], torch.tensor(both)], 1).to(torch.int8)
            out[f"{name}.vectors"] = vectors
            out[f"{name}.lattice_vectors"] = lattice_vectors[0]
            done += 1
    save_file(out, pathlib.Path(sys.argv[2]) / "comformer_fractional.safetensors", {"numpy": numpy.__version__})


main()
