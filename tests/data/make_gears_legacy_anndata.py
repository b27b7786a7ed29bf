#!/usr/bin/env python3
"""Writes gears_legacy.h5ad: 40 cells and 30 genes of a real file in AnnData's encoding before 0.7, and the same cells
in 0.7's encoding (gears_anndata_0.7.h5ad) and in today's with every string nullable (gears_nullable.h5ad).

The real file is scanpy/datasets/10x_pbmc68k_reduced.h5ad of the wheel scanpy 1.11.5. The excerpt keeps its types:
obs and var are compounds, categories are in uns, raw.X is a csr of h5sparse_format.

usage: make_gears_legacy_anndata.py 10x_pbmc68k_reduced.h5ad FOLDER      (needs h5py and numpy)
"""
import pathlib
import sys

import h5py
import numpy
from numpy.lib.recfunctions import repack_fields

CELLS, GENES = 40, 30
COLUMNS = ["index", "bulk_labels", "n_genes", "phase"]


def write_legacy(source, path):
    with h5py.File(path, "w", libver="earliest") as out:
        data, indices, indptr = (source["raw.X"][name][:] for name in ("data", "indices", "indptr"))
        rows = [numpy.flatnonzero(indices[indptr[i] : indptr[i + 1]] < GENES) + indptr[i] for i in range(CELLS)]
        group = out.create_group("X")
        group.attrs["h5sparse_format"] = "csr"
        group.attrs["h5sparse_shape"] = numpy.array([CELLS, GENES])
        group["data"] = numpy.concatenate([data[row] for row in rows])
        group["indices"] = numpy.concatenate([indices[row] for row in rows])
        group["indptr"] = numpy.cumsum([0] + [len(row) for row in rows]).astype("int32")
        out["obs"] = repack_fields(source["obs"][:CELLS][COLUMNS])
        out["var"] = source["raw.var"][:GENES]
        for name in ("bulk_labels", "phase"):
            out[f"uns/{name}_categories"] = source[f"uns/{name}_categories"][:]


def sparse(out, legacy):
    group = out.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
    group.attrs["shape"] = numpy.array([CELLS, GENES])
    for name in ("data", "indices", "indptr"):
        group[name] = legacy["X"][name][:]


def text(values):
    return [value.decode() for value in values]


def write_07(legacy, path):
    with h5py.File(path, "w") as out:
        sparse(out, legacy)
        for table in ("obs", "var"):
            group = out.create_group(table)
            group.attrs["encoding-type"] = "dataframe"
            group.attrs["encoding-version"] = "0.1.0"
            columns = ["bulk_labels", "phase"] if table == "obs" else []
            group.attrs["column-order"] = numpy.array(columns, dtype=h5py.string_dtype())
            group.attrs["_index"] = "barcode" if table == "obs" else "symbol"
            group[group.attrs["_index"]] = text(legacy[table]["index"])
        for name in ("bulk_labels", "phase"):
            categories = out.create_dataset(f"obs/__categories/{name}", data=text(legacy[f"uns/{name}_categories"][:]))
            codes = out.create_dataset(f"obs/{name}", data=legacy["obs"][name])
            codes.attrs["categories"] = categories.ref


def nullable(group, name, values):
    inner = group.create_group(name)
    inner.attrs.update({"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"})
    inner["values"] = values
    inner["values"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    inner["mask"] = numpy.array([value == "" for value in values])
    inner["mask"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})


def write_nullable(legacy, path):
    with h5py.File(path, "w") as out:
        sparse(out, legacy)
        for table in ("obs", "var"):
            group = out.create_group(table)
            group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
            columns = ["bulk_labels"] if table == "obs" else []
            group.attrs["column-order"] = numpy.array(columns, dtype=h5py.string_dtype())
            nullable(group, "_index", text(legacy[table]["index"]))
        labels = text(legacy["uns/bulk_labels_categories"][:])
        nullable(out["obs"], "bulk_labels", [labels[code] for code in legacy["obs"]["bulk_labels"][:-1]] + [""])


def main():
    directory = pathlib.Path(sys.argv[2])
    with h5py.File(sys.argv[1]) as source:
        write_legacy(source, directory / "gears_legacy.h5ad")
    with h5py.File(directory / "gears_legacy.h5ad") as legacy:
        write_07(legacy, directory / "gears_anndata_0.7.h5ad")
        write_nullable(legacy, directory / "gears_nullable.h5ad")


main()
