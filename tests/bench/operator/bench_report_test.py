#!/usr/bin/env python3
"""The rows of the part queued: the ratio is that of the rounds, and the goal is a third."""
import report


def run(cpu, requests):
    return {"jobs": 1000, "queued": 10.0, "running": 50.0, "cpu_ms_per_job": cpu, "rss_peak": 20.0, "requests_per_job": requests,
            "requests_per_job_helped": requests, "cpu_of_controller_manager": 1.0, "cpu_of_kueue": 2.0}


def main():
    both = {"Oarlock": [run(2.0, 12.0), run(3.0, 12.0)], "JobSet": [run(10.0, 14.0), run(10.0, 14.0)]}
    rows = {row.figure: row for row in report.rows({"queued": both})}
    cpu = rows["controller CPU per queued job, ms"]
    assert cpu.values == {"Oarlock": "2.50 (0.25 of JobSet's)", "JobSet": "10.00"} and cpu.reached is True, cpu
    requests = rows["API requests per queued job, of the process"]
    assert requests.values["Oarlock"] == "12.0 (0.86 of JobSet's)" and requests.reached is False, requests
    assert rows["Kueue's CPU (not counted), s"].reached is None
    alone = report.rows({"queued": {"Oarlock": [run(2.0, 12.0)]}})
    assert all(row.reached is None and "of JobSet" not in row.values["Oarlock"] for row in alone), alone
    print("ratios and goals are right")


if __name__ == "__main__":
    main()
