#!/usr/bin/env python3
"""Writes gears_interaction.json: scores of genetic interaction by the libraries that cell-gears 0.1.2 takes them from
(get_coeffs() of gears/utils.py), for two made-up pairs of perturbations.

usage: make_gears_interaction.py > gears_interaction.json      (needs numpy, scikit-learn and dcor)
"""
import json

import numpy
from dcor import distance_correlation
from sklearn.linear_model import TheilSenRegressor


def scores(first, second, both):
    singles = numpy.array([first, second]).T
    model = TheilSenRegressor(fit_intercept=False, max_subpopulation=1e5, max_iter=1000, random_state=1000)
    model.fit(singles, both)
    c1, c2 = model.coef_
    dcor_first, dcor_second = distance_correlation(first, both), distance_correlation(second, both)
    return {
        "c1": c1,
        "c2": c2,
        "mag": numpy.sqrt(c1**2 + c2**2),
        "dcor": distance_correlation(singles, both),
        "dcor_singles": distance_correlation(first, second),
        "dcor_first": dcor_first,
        "dcor_second": dcor_second,
        "corr_fit": numpy.corrcoef(model.predict(singles), both)[0, 1],
        "dominance": numpy.abs(numpy.log10(c1 / c2)),
        "eq_contr": min(dcor_first, dcor_second) / max(dcor_first, dcor_second),
    }


def main():
    random = numpy.random.default_rng(3)
    cases = []
    for weights, noise in (((1.0, 1.0), 0.05), ((0.3, 1.4), 0.4)):
        first, second = random.normal(size=(2, 40))
        both = weights[0] * first + weights[1] * second + noise * random.normal(size=40)
        cases.append({"first": list(first), "second": list(second), "both": list(both),
                      "scores": scores(first, second, both)})
    print(json.dumps(cases, indent=1))


main()
