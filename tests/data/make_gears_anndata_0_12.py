#!/usr/bin/env python3
"""Writes gears_anndata_0.12.h5ad with anndata itself: a CSR matrix with unsorted and duplicate indices, string columns
and categories that may be missing (as with pandas 3), and genes with commas, quotes and letters outside of ASCII.

The layer "dense" is what anndata and SciPy read from X.

usage: make_gears_anndata_0_12.py FOLDER      (needs anndata 0.12 and pandas)
"""
import pathlib
import sys
import warnings

import anndata
import numpy
import pandas
from scipy import sparse

GENES = ["A", "B,b", 'C "c"', "Ångström-γ"]
CONDITIONS = ["ctrl", "A+ctrl", "ctrl", "B,b+ctrl", "A+ctrl", "ctrl"]


def matrix():
    random = numpy.random.default_rng(0)
    indices = [random.integers(0, len(GENES), size) for size in (3, 7, 0, 2, 5, 4)]  # more values than genes, and none
    data = random.integers(1, 9, sum(map(len, indices))).astype("float32") / 4
    indptr = numpy.cumsum([0] + [len(row) for row in indices])
    return sparse.csr_matrix((data, numpy.concatenate(indices), indptr), shape=(len(CONDITIONS), len(GENES)))


def main(path):
    warnings.simplefilter("ignore")
    anndata.settings.allow_write_nullable_strings = True
    strings = lambda values: pandas.array(values, dtype="string")
    obs = pandas.DataFrame({"condition": pandas.Categorical(strings(CONDITIONS)),
                            "cell_type": strings(["T", None, "T", "T", "B", "B"])},
                           index=strings([f"cell{i}" for i in range(len(CONDITIONS))]))
    var = pandas.DataFrame({"gene_name": strings(GENES)}, index=strings([f"ENSG{i}" for i in range(len(GENES))]))
    anndata.AnnData(X=matrix(), obs=obs.copy(), var=var).write_h5ad(path)
    dense = anndata.read_h5ad(path).X.toarray()
    anndata.AnnData(X=matrix(), obs=obs, var=var, layers={"dense": dense}).write_h5ad(path)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) / "gears_anndata_0.12.h5ad")
