"""The audit log of the API server: requests by client, counted at the server."""
import collections
import dataclasses
import datetime
import json
import os

READS = {"get", "list", "watch"}
LONGEST_LINE = 1 << 20  # bytes; more than the metadata of a request can be


@dataclasses.dataclass(frozen=True)
class Request:
    verb: str
    resource: str  # "pods", "trainingjobs/status"
    arrived: float  # Unix time
    answered: float
    uri: str


def policy(users):
    """An audit policy, as JSON: the metadata of these users' requests and nothing else."""
    return json.dumps({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    })


def unix_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class AuditLog:
    def __init__(self, path):
        self._path = path

    def end(self):
        """The place to read from later: after the last line that is whole."""
        if not self._path.exists():
            return 0
        with open(self._path, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            start = log.seek(max(0, size - LONGEST_LINE))
            return start + log.read(size - start).rfind(b"\n") + 1

    def requests(self, user, since=0):
        """Each request that this user has made since; leases left out."""
        found = []
        if not self._path.exists():
            return found
        with open(self._path, "rb") as log:
            log.seek(since)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # it is being written
                event = json.loads(line)
                if event["user"]["username"] != user or "objectRef" not in event:
                    continue
                # A watch is counted when it begins, anything else when it is answered.
                if event["stage"] != ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"):
                    continue
                reference = event["objectRef"]
                if reference["resource"] == "leases":
                    continue
                resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
                found.append(Request(event["verb"], resource, unix_time(event["requestReceivedTimestamp"]),
                                     unix_time(event["stageTimestamp"]), event["requestURI"]))
        return found

    def writes(self, user, since=0):
        return [request for request in self.requests(user, since) if request.verb not in READS]


def counted(requests, jobs):
    """Requests per job by verb and resource, the most frequent first; the watches, which all jobs share, left out."""
    counts = collections.Counter(f"{r.verb} {r.resource}" for r in requests if r.verb != "watch")
    return {what: round(count / jobs, 2) for what, count in counts.most_common() if count * 10 >= jobs}
