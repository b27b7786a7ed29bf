#!/usr/bin/env python3
"""Writes comformer_crystals.extxyz: real crystals as ase writes them; comformer_crystals.json: what ase reads back, which
frames its index strings take, and how Python's random draws the split; comformer_crystals_list.json: the same crystals
as a list, in the forms of pymatgen and of jarvis.

usage: make_comformer_crystals.py OUTPUT_FOLDER
Needs ase 3.29 (its wheel has minerals of the Crystallography Open Database, as CIF).
"""
import json
import pathlib
import random
import sys
import warnings

import ase
import ase.io
import numpy
from ase.io.formats import string2index

SLICES = [":", "::10", "::3", "1:5", "-2:", "::-1", "5:1:-2", ":-20", "100:", "3", "-1", "-1:-4:-1", ":100:4"]


def split(total, seed, train=0.8, val=0.1, test=0.1):
    """As the data loaders of ALIGNN, Matformer and ComFormer draw it."""
    ids = list(range(total))
    random.seed(seed)
    random.shuffle(ids)
    n_train, n_val, n_test = int(train * total), int(val * total), int(test * total)
    return {"total": total, "seed": seed, "train": ids[:n_train], "val": ids[-(n_val + n_test) : -n_test], "test": ids[-n_test:]}


def as_list(frames):
    """One form after the other: plain, jarvis, pymatgen."""
    out = []
    for i, atoms in enumerate(frames):
        label = {"formation_energy_per_atom": atoms.info["formation_energy_per_atom"]}
        lattice, symbols = atoms.cell.tolist(), atoms.get_chemical_symbols()
        frac = atoms.get_scaled_positions(wrap=False).tolist()
        cart = atoms.positions.tolist()
        if i % 4 == 0:
            out.append({"lattice": lattice, "species": symbols, "frac_coords": frac, **label})
        elif i % 4 == 1:
            out.append({"lattice": lattice, "numbers": atoms.numbers.tolist(), "cart_coords": cart, **label})
        elif i % 4 == 2:
            out.append({"jid": f"X-{i}", "atoms": {"lattice_mat": lattice, "elements": symbols, "coords": cart if i > 4 else frac,
                                                   "cartesian": i > 4}, **label})
        else:
            sites = [{"species": [{"element": s, "occu": 1}], "abc": f, "xyz": c} for s, f, c in zip(symbols, frac, cart)]
            out.append({"structure": {"@class": "Structure", "lattice": {"matrix": lattice}, "sites": sites}, **label})
    return out


def main():
    directory = pathlib.Path(sys.argv[1])
    warnings.simplefilter("ignore")
    minerals = sorted((pathlib.Path(ase.__file__).parent / "test/testdata/minerals").glob("cod_*.cif"))
    frames = []
    for i, path in enumerate(minerals):
        atoms = ase.io.read(path)
        for key in list(atoms.arrays):
            if key not in ("numbers", "positions"):
                del atoms.arrays[key]
        atoms.info = {"cod": path.stem, "formation_energy_per_atom": round(-0.1 * i - 1.25, 3), "a key": "two \"words\"", "flag": True,
                      "matrix": numpy.arange(9).reshape(3, 3) + i}
        if i % 2:
            atoms.set_array("forces", numpy.arange(3.0 * len(atoms)).reshape(-1, 3))
        frames.append(atoms)
    target = directory / "comformer_crystals.extxyz"
    ase.io.write(target, frames, format="extxyz")
    read = ase.io.read(target, ":")
    crystals = [{"lattice": a.cell.tolist(), "numbers": a.numbers.tolist(), "positions": a.positions.tolist(),
                 "formation_energy_per_atom": a.info["formation_energy_per_atom"], "cod": a.info["cod"]} for a in read]
    slices = {}
    for text in SLICES:
        taken = list(range(len(frames)))[string2index(text)]
        slices[text] = taken if isinstance(taken, list) else [taken]
    splits = [split(total, seed) for total, seed in ((10, 123), (37, 123), (1000, 123), (1000, 7), (20, 2**40 + 5))]
    golden = {"ase": ase.__version__, "crystals": crystals, "slices": slices, "splits": splits}
    (directory / "comformer_crystals.json").write_text(json.dumps(golden) + "\n")
    (directory / "comformer_crystals_list.json").write_text(json.dumps(as_list(read)) + "\n")


main()
