#!/usr/bin/env python3
"""Checks that every alert has a severity, a summary and description, an existing runbook, and tests in which it fires and
in which it does not.

usage: check_alerts.py RULES_DIRECTORY RUNBOOKS_DIRECTORY
"""
import pathlib
import sys

import yaml

SECTIONS = ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation")


def problems(rules, tests, runbooks):
    checks = [check for test in tests["tests"] for check in test.get("alert_rule_test", [])]
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    for alert in alerts:
        name = alert["alert"]
        if alert.get("labels", {}).get("severity") not in ("critical", "warning"):
            yield f"{name}: severity must be critical or warning"
        for key in ("summary", "description"):
            if not alert["annotations"].get(key, "").endswith("."):
                yield f"{name}: needs a {key}, a sentence"
        if alert["annotations"].get("runbook_url") != f"RUNBOOKS/{name}.md":
            yield f"{name}: runbook_url must be RUNBOOKS/{name}.md"
        page = runbooks / f"{name}.md"
        text = page.read_text() if page.exists() else ""
        for section in SECTIONS:
            if section not in text:
                yield f"{page}: has no section '{section}'"
        mine = [check for check in checks if check["alertname"] == name]
        if not any(check["exp_alerts"] for check in mine):
            yield f"{name}: no test in which it fires"
        if not any(not check["exp_alerts"] for check in mine):
            yield f"{name}: no test in which it is silent"
    names = {alert["alert"] for alert in alerts}
    for page in runbooks.glob("*.md"):
        if page.stem not in names:
            yield f"{page}: there is no such alert"


def main():
    directory, runbooks = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    rules = yaml.safe_load((directory / "oarlock.rules.yml").read_text())
    tests = yaml.safe_load((directory / "oarlock.rules.test.yml").read_text())
    found = list(problems(rules, tests, runbooks))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
