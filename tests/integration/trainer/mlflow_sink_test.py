#!/usr/bin/env python3
"""The MLflow sink against a real MLflow server with a SQLite store, behind a proxy that fails in the ways in which
servers and networks fail: nothing is lost, and each point is stored once.

usage: mlflow_sink_test.py SINK_DRIVER   (OARLOCK_BIN: the directory of the programs)
"""
import base64
import json
import pathlib
import ssl
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "tracking"))

from mlflow_server import REJECTED, TIMEOUT, wait_until  # noqa: E402
from mlflow_sink import MlflowSinkCase, main  # noqa: E402



class MlflowSinkTest(MlflowSinkCase):
    def test_reports_a_run(self):
        driver = self.driver({"MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"})
        events = [self.started(), *self.losses(range(1, 1201)),  # more than one request may have
                  {"time": 1.7e9 + 1201, "step": 1201, "scalars": {"diverged": "NaN", "huge": "inf"}},
                  {"time": 1.7e9 + 1202, "step": 1202, "text": {"name": "samples/sequences", "text": "MKV"}},
                  {"time": 1.7e9 + 1203, "step": 1203, "finished": {"summary": {"eval/mse": 0.5}, "time_table": "|t|"}}]
        self.assertEqual(driver.deliver(events), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(1200)
        self.assertEqual([p[0] for p in self.history("diverged")], [1201])
        job, attempt = self.run_of("job"), self.run_of(0)
        self.assertEqual((job["info"]["status"], attempt["info"]["status"]), ("FINISHED", "FINISHED"))
        self.assertEqual(job["info"]["run_name"], "r1")
        tags = {t["key"]: t["value"] for t in attempt["data"]["tags"]}
        self.assertEqual(tags["mlflow.parentRunId"], job["info"]["run_id"])
        self.assertEqual(tags["mlflow.source.git.commit"], "abcdef")
        self.assertEqual(tags["oarlock.reason"], "Completed")
        params = {p["key"]: p["value"] for p in job["data"]["params"]}
        self.assertEqual((params["optimizer.lr"], params["ddp/world_size"]), ("0.1", "2"))
        self.assertEqual({m["key"]: m["value"] for m in attempt["data"]["metrics"]}, {"eval/mse": 0.5})
        stored = list((self.directory / "artifacts").glob(f"*/{job['info']['run_id']}/artifacts/text/samples/sequences/*.md"))
        self.assertEqual([f.read_text() for f in stored], ["MKV"])
        self.assertEqual(self.proxy.authorization, {"Basic " + base64.b64encode(b"u:p").decode()})

    def test_survives_faults_of_the_server(self):
        driver = self.driver({"SINK_TIMEOUT": "6", "MLFLOW_TRACKING_TOKEN": "secret"})
        last = 0
        # The creation of the runs, and then batches of points, meet each fault. 9 s is longer than the timeout.
        for fault in (("status", 500), ("status", 429), ("status", 200), ("object", None), ("status", 302), ("close", None), ("lose", None), ("half", None), ("cut", None), ("slow", 9), ("endless", None)):
            events = self.losses(range(last + 1, last + 21))
            if last == 0:
                events.insert(0, self.started())
            self.proxy.faults.extend([fault] * 2)
            failures = driver.deliver(events)
            self.assertTrue(failures, fault)
            self.assertFalse(self.proxy.faults)
            last += 20
        self.proxy.faults.append(("reject", None))  # of several events: which of them is the cause is not known
        failures = driver.deliver(self.losses(range(last + 1, last + 21)))
        self.assertEqual([f for f in failures if "400" in f], [])  # on a busy machine, a request may take too long
        last += 20
        attempt = 0
        # Each request of the start of an attempt loses its response once, or gets that of another program.
        for fault in ("lose", "object", "half"):
            for request in range(12):
                attempt += 1
                self.proxy.faults.extend([(None, None)] * request + [(fault, None)])
                driver.deliver([self.started(attempt, last), *self.losses(range(last + 1, last + 3), 1)])
                self.proxy.faults.clear()
                last += 2
                self.run_of(attempt)  # exists once
        self.assertEqual(driver.end(), 0)
        self.check_points(last)
        self.assertEqual(self.proxy.authorization, {"Bearer secret"})

    def test_waits_for_slow_server(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started()]), [])
        self.proxy.faults.append(("slow", 10))
        self.assertEqual(driver.deliver(self.losses(range(1, 21))), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(20)

    def test_attempts_continue_after_kills(self):
        driver = self.driver()
        driver.deliver([self.started(), *self.losses(range(1, 31))])
        self.proxy.faults.append(("slow", 3))  # killed while the request is on its way
        driver.write(self.losses(range(31, 41)))
        wait_until(lambda: not self.proxy.faults, "the request has arrived")
        driver.kill()
        driver = self.driver()
        # The journal has events of the first attempt that were delivered, and its start is not among them.
        driver.deliver([*self.losses(range(25, 41)), self.started(1, 20, {"optimizer": {"lr": 0.2}}),
                        *self.losses(range(21, 51), 1),
                        {"time": 1.7e9 + 2000, "step": 50, "finished": {"success": False, "resumes": True,
                                                                         "reason": "Interrupted"}}])
        self.assertEqual(self.run_of(1)["info"]["status"], "KILLED")
        self.assertEqual(self.run_of("job")["info"]["status"], "RUNNING")
        self.server.kill()
        driver.write([self.started(2, 50), *self.losses(range(51, 61), 2),
                      {"time": 1.7e9 + 3000, "step": 60, "finished": {"success": False, "reason": "Failed"}}])
        self.assertIn("failed: ", [driver.lines.get(timeout=TIMEOUT)[:8] for _ in range(6)])
        self.server.start()
        self.assertEqual(driver.end(), 0)
        self.check_points(60)
        self.assertEqual(self.run_of("job")["info"]["status"], "FAILED")
        params = {p["key"]: p["value"] for p in self.run_of(1)["data"]["params"]}
        self.assertEqual((params["optimizer.lr"], params["restart_step"]), ("0.2", "20"))

    def test_artifact_that_cannot_be_stored_does_not_hold_up_points(self):
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 3))]), [])
        self.proxy.fails_artifacts = True
        failures = driver.deliver([
            {"time": 1.7e9 + 2, "step": 2, "text": {"name": "samples/sequences", "text": "MKV"}}, *self.losses(range(3, 11)),
            {"time": 1.7e9 + 11, "step": 10, "finished": {"summary": {}, "time_table": "|t|"}}])
        self.assertTrue(failures)
        self.assertEqual(driver.end(), 0)
        self.check_points(10)
        self.assertEqual(self.run_of("job")["info"]["status"], "FINISHED")

    def test_drops_rejected_items_only(self):
        """As of servers with other limits than this one."""
        rejected = (b'"NaN"', b'"data.odd"', b'"oarlock.message"', b'"oarlock.version.odd"')
        self.proxy.rule = lambda handler, body: REJECTED if any(item in body for item in rejected) else None
        driver = self.driver()
        started = self.started(config={"data": {"a//b": 1, "odd": 2, "fine": 3, "long": "y\n" * 9000}})
        started["started"]["versions"]["odd"] = "1"
        self.assertEqual(driver.deliver([
            started, *self.losses(range(1, 4)),
            {"time": 1.7e9 + 4, "step": 4, "scalars": {"loss": 1, "bad": "NaN", "eval/mse": 4, "eval//x": 5, "eval/top-1/": 6}},
            *self.losses(range(5, 8)),
            {"time": 1.7e9 + 8, "step": 7, "finished": {"summary": {"eval/mse": 0.5}, "message": "done"}}]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(7)
        job, attempt = self.run_of("job"), self.run_of(0)
        metrics = {m["key"]: m["value"] for m in job["data"]["metrics"]}
        self.assertEqual(sorted(metrics.values()), [1.75, 5, 6, 7])  # the last loss and eval/mse
        self.assertNotIn("bad", metrics)
        params = {p["key"]: p["value"] for p in job["data"]["params"]}
        self.assertEqual(params["data.fine"], "3")
        self.assertNotIn("data.odd", params)
        self.assertEqual([value for key, value in params.items() if key.startswith("data.a/b-")], ["1"])
        self.assertEqual({m["key"]: m["value"] for m in attempt["data"]["metrics"]}, {"eval/mse": 0.5})
        for run in (job, attempt):
            tags = {t["key"]: t["value"] for t in run["data"]["tags"]}
            self.assertEqual((tags["oarlock.reason"], tags["oarlock.version.oarlock"]), ("Completed", "0.1.0"))
            self.assertEqual(run["info"]["status"], "FINISHED")
        warnings = [line for line in driver.log.read_text().splitlines() if "rejected content is dropped" in line]
        self.assertEqual(len(warnings), 4, warnings)  # one for each

    def test_names_remain_different(self):
        values = {"eval/准确率": 1, "eval/召回率": 2, "a@1": 3, "a%1": 4, "x" * 260 + "1": 5, "x" * 260 + "2": 6, "x" * 249 + "/y": 7,
                  "../../etc": 8, ".": 9}
        driver = self.driver()
        texts = [{"time": 1.7e9 + 1, "step": 1, "text": {"name": name, "text": name}} for name in ("a.b", "a:b", "eval/文", "../x")]
        self.assertEqual(driver.deliver([self.started(), {"time": 1.7e9 + 1, "step": 1, "scalars": values}, *texts]), [])
        self.assertEqual(driver.end(), 0)
        job = self.run_of("job")
        metrics = {m["key"]: m["value"] for m in job["data"]["metrics"]}
        self.assertEqual(sorted(metrics.values()), list(range(1, 10)))
        self.assertEqual((metrics["eval/准确率"], metrics["eval/召回率"]), (1, 2))
        stored = (self.directory / "artifacts").glob(f"*/{job['info']['run_id']}/artifacts/text/**/*.md")
        self.assertEqual(sorted(f.read_text() for f in stored), ["../x", "a.b", "a:b", "eval/文"])

    def test_divides_requests_that_are_too_large(self):
        def limit(handler, body):
            return (413, b"<html>too large</html>") if len(body) > 3000 else None
        self.proxy.rule = limit
        driver = self.driver()
        self.assertEqual(driver.deliver([
            self.started(), *self.losses(range(1, 101)),
            {"time": 1.7e9 + 100, "step": 100, "text": {"name": "large", "text": "x" * 5000}},
            {"time": 1.7e9 + 100, "step": 100, "text": {"name": "small", "text": "x"}}, *self.losses(range(101, 111))]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(110)
        run = self.run_of("job")["info"]["run_id"]
        self.assertEqual([f.parent.name for f in (self.directory / "artifacts").glob(f"*/{run}/artifacts/text/*/*.md")], ["small"])
        # Not the size of a single point is the cause, but the proxy.
        driver = self.driver()
        self.proxy.rule = lambda handler, body: (413, b"") if b'"metrics"' in body else None
        driver.write(self.losses([111]))
        driver.wait_for_failure("413")
        self.proxy.rule = None
        driver.wait_for_delivery(1)
        self.check_points(111)

    def test_waits_for_rotated_token(self):
        token = self.directory / "token"
        token.write_text("old")
        def check_token(handler, body):
            return None if handler.headers.get("Authorization") == "Bearer new" else (401, b"Unauthorized")
        self.proxy.rule = check_token
        driver = self.driver({"SINK_TOKEN_FILE": str(token)})
        driver.write([self.started(), *self.losses(range(1, 4))])
        driver.wait_for_failure("HTTP status 401")
        token.write_text("new")
        driver.wait_for_delivery(4)
        self.assertEqual(driver.end(), 0)
        self.check_points(3)

    def test_accepts_steps_of_64_bits(self):
        steps = range(2**31 - 1, 2**31 + 3)
        driver = self.driver()
        self.assertEqual(driver.deliver([self.started(), *self.losses(steps)]), [])
        driver.kill()
        driver = self.driver()
        self.assertEqual(driver.deliver([*self.losses(steps), self.started(1, 2**31 + 2)]), [])
        self.assertEqual(driver.end(), 0)
        self.assertEqual([step for step, _ in self.history("loss")], list(steps))
        params = {p["key"]: p["value"] for p in self.run_of(1)["data"]["params"]}
        self.assertEqual(params["restart_step"], str(2**31 + 2))

    def test_verifies_the_certificate(self):
        """Of a private authority, whose certificate is configured."""
        directory = self.directory / self.key
        directory.mkdir()
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=TIMEOUT)
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        openssl("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a private authority")
        openssl("req", "-x509", *ec, "-keyout", "key", "-out", "pem", "-subj", "/CN=mlflow", "-addext", "subjectAltName=IP:127.0.0.1",
                "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "pem", directory / "key")
        proxy = self.another_proxy(context)
        environment = {"MLFLOW_TRACKING_URI": f"https://127.0.0.1:{proxy.server_port}", "MLFLOW_TRACKING_TOKEN": "secret"}
        driver = self.driver(environment)
        driver.write([self.started()])
        driver.wait_for_failure("certificate")
        driver.kill()
        self.assertEqual(proxy.authorization, set())  # the token is not sent to a server that is not verified
        driver = self.driver({**environment, "MLFLOW_TRACKING_SERVER_CERT_PATH": str(directory / "ca.pem")})
        self.assertEqual(driver.deliver([self.started(), *self.losses(range(1, 21))]), [])
        self.assertEqual(driver.end(), 0)
        self.check_points(20)
        self.assertEqual(proxy.authorization, {"Bearer secret"})

    def test_messages_have_no_secrets(self):
        uri = f"http://127.0.0.1:{self.proxy.server_port}/secret"
        driver = self.driver({"MLFLOW_TRACKING_URI": uri})
        self.proxy.faults.append(("close", None))
        driver.write([self.started()])
        lines = [driver.lines.get(timeout=TIMEOUT) for _ in range(3)]
        self.assertTrue(all(line.startswith("failed: ") for line in lines), lines)
        self.assertNotIn("secret", "".join(lines) + driver.log.read_text())
        self.assertIn("/secret/api/2.0/", self.proxy.seen[0][1])

    def test_messages_are_short_and_printable(self):
        error = json.dumps({"error_code": "\x1b" + "X" * 100_000, "message": "\x1b" + "Y" * 100_000}).encode()
        self.proxy.rule = lambda handler, body: (500, error)
        driver = self.driver()
        driver.write([self.started()])
        line = driver.lines.get(timeout=TIMEOUT)
        self.assertTrue(line.startswith("failed: "), line[:200])
        self.assertIn("500, ", line[:200])
        self.assertLess(len(line), 600)
        self.assertTrue(line.isprintable(), line)

    def test_ids_of_a_server_are_short_and_printable(self):
        for odd in ("x" * 1_000_000, "x\x1b[31m", "\u202e"):
            def answer(handler, body):
                if not handler.path.endswith("/runs/create"):
                    return None
                return 200, json.dumps({"run": {"info": {"run_id": odd}}}).encode()
            self.tracking = self.directory / f"ids-{len(odd)}"
            self.key = self.tracking.name
            self.proxy.rule = answer
            driver = self.driver()
            driver.write([self.started(), *self.losses(range(1, 4))])
            line = driver.lines.get(timeout=TIMEOUT)
            self.assertIn("has the run_id 'x" if odd[0] == "x" else "has the run_id '", line[:200])
            self.assertLess(len(line), 400)
            self.assertTrue(line.isprintable(), line)
            self.assertLess((self.tracking / "mlflow.json").stat().st_size, 1000)
            self.proxy.rule = None
            driver.wait_for_delivery(4)
            self.assertEqual(driver.end(), 0)
            self.assertLess(len(driver.log.read_text()), 2000)
            # The server has the run, although the response was another one.
            self.check_points(3)


if __name__ == "__main__":
    main()
