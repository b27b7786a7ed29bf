#!/usr/bin/env python3
"""Tests of the checks of the dashboards: each planted fault is found, and the committed dashboards have none.

usage: dashboards_test.py
"""
import json
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "scripts/lib/chart"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
VERSION = re.search(r"^kGrafanaSdkVersion='(.*)'$", (CHART / "grafana_sdk.sh").read_text(), re.M)[1]
sys.path[:0] = [str(CHART), str(CACHE / f"grafana-foundation-sdk-{VERSION.replace('!', '-')}")]

import dashboard_queries  # noqa: E402
import draw_dashboards  # noqa: E402
import lint_dashboards  # noqa: E402

BOARDS = {path.stem: path for path in (ROOT / "charts/oarlock/files/dashboards").glob("*.json")}
METRICS = lint_dashboards.known_metrics(ROOT)
JOB = 'cluster=~"$cluster", namespace=~"$namespace", trainingjob=~"$trainingjob"'


def board(name="oarlock-trainingjob"):
    return json.loads(BOARDS[name].read_text())


def panel(changed, title):
    return next(one for one in changed["panels"] if one["title"] == title)


def problems(changed):
    return list(lint_dashboards.board_problems(changed, METRICS, set(BOARDS)))


class LintTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lint_dashboards.plugins.register_default_plugins()

    def assert_found(self, changed, expected):
        found = problems(changed)
        self.assertTrue(any(expected in problem for problem in found), f"no '{expected}' in {found}")

    def assert_query_found(self, query, expected):
        changed = board()
        panel(changed, "Loss")["targets"][0]["expr"] = query
        self.assert_found(changed, expected)

    def test_committed_dashboards_have_no_problems(self):
        self.assertEqual(len(BOARDS), 3)
        for name in BOARDS:
            self.assertEqual(problems(board(name)), [])

    def test_unknown_field(self):
        changed = board()
        panel(changed, "Loss")["fieldConfig"]["defaults"]["untt"] = "s"
        self.assert_found(changed, "unknown field")

    def test_missing_field(self):
        changed = board()
        del changed["schemaVersion"]
        self.assert_found(changed, "missing field")

    def test_wrong_type(self):
        changed = board()
        panel(changed, "Loss")["fieldConfig"]["defaults"]["thresholds"] = 3
        self.assert_found(changed, "schema: ")

    def test_unknown_metric(self):
        self.assert_query_found(f"max(trainer_los{{{JOB}}})", "no program exports trainer_los")

    def test_unknown_label_in_selector(self):
        self.assert_query_found(f'max(trainer_loss{{{JOB}, phase="eval"}})', "trainer_loss has no label phase")

    def test_unknown_label_in_grouping(self):
        self.assert_query_found(f"max by (cluster, host) (trainer_loss{{{JOB}}})", "groups by the unknown label host")

    def test_counter_without_rate(self):
        self.assert_query_found(f"sum(trainer_steps_total{{{JOB}}})", "outside of rate()")

    def test_query_without_cluster(self):
        self.assert_query_found('max(trainer_loss{namespace=~"$namespace"})', "is not limited to $cluster")

    def test_unknown_variable(self):
        self.assert_query_found(f'max(trainer_loss{{{JOB}, rank="$rank"}})', "the variable $rank does not exist")

    def test_fixed_range(self):
        self.assert_query_found(f"sum(rate(trainer_steps_total{{{JOB}}}[5m]))", "a fixed range")

    def test_series_of_all_replicas(self):
        self.assert_query_found(f"sum(trainingjob_spec_replicas{{{JOB}}})", "once for each replica")

    def test_overlapping_panels(self):
        changed = board()
        panel(changed, "Gradient norm")["gridPos"]["x"] = 11
        self.assert_found(changed, "overlaps")

    def test_description_that_is_no_sentence(self):
        changed = board()
        panel(changed, "Loss")["description"] = "the loss"
        self.assert_found(changed, "needs a description")

    def test_broken_link(self):
        changed = board("oarlock-fleet")
        text = json.dumps(changed).replace("/d/oarlock-trainingjob/", "/d/oarlock-job/")
        self.assert_found(json.loads(text), "link to the dashboard oarlock-job")

    def test_picture_of_another_version(self):
        changed = board()
        picture = ROOT / "docs/dashboards/oarlock-trainingjob.png"
        self.assertEqual(list(lint_dashboards.picture_problems(changed, picture)), [])
        panel(changed, "Loss")["title"] = "Training loss"
        self.assertEqual(len(list(lint_dashboards.picture_problems(changed, picture))), 1)

    def test_digest_ignores_queries(self):
        changed = board()
        panel(changed, "Loss")["targets"][0]["expr"] = "1"
        self.assertEqual(draw_dashboards.digest(changed), draw_dashboards.digest(board()))


class Answers(dashboard_queries.Prometheus):
    """A Prometheus in which the metrics of `missing` have no series."""

    def __init__(self, missing):
        super().__init__("", 0, 3600, 15)
        self.missing = missing

    def get(self, path, **parameters):
        if path.startswith("label/"):
            return ["one"]
        is_missing = any(metric in parameters["query"] for metric in self.missing)
        return {"result": [] if is_missing else [{"metric": {}, "values": [[0, "1"]]}]}


class QueriesTest(unittest.TestCase):
    def test_all_queries_have_data(self):
        good, empty, found = dashboard_queries.check(board(), Answers([]))
        self.assertEqual((empty, found), (0, []))
        self.assertEqual(good, len(list(dashboard_queries.queries(board()))))

    def test_query_without_data_is_a_problem(self):
        _, _, found = dashboard_queries.check(board(), Answers(["trainer_learning_rate"]))
        self.assertEqual(len(found), 1)
        self.assertIn("panel 'Learning rate' A: no data", found[0])

    def test_unavailable_metric_may_have_no_data(self):
        _, empty, found = dashboard_queries.check(board(), Answers(["DCGM_"]), unavailable=r"DCGM_\w+")
        self.assertEqual((empty, found), (5, []))

    def test_only_selects_queries(self):
        good, _, _ = dashboard_queries.check(board(), Answers([]), only="trainer_learning_rate")
        self.assertEqual(good, 1)

    def test_variables_are_expanded(self):
        variables = dashboard_queries.Variables(Answers([]), {"namespace": ".+"})
        self.assertEqual(variables.expand('a{b=~"$namespace"}[$__rate_interval]'), 'a{b=~".+"}[60s]')
        self.assertEqual(variables.expand("a[$__rate_interval]", "30s"), "a[120s]")
        self.assertEqual(variables.expand('label_replace(a, "b", "$1", "c", "(.+)")'), 'label_replace(a, "b", "$1", "c", "(.+)")')


if __name__ == "__main__":
    unittest.main()
