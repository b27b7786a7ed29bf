"""The job that every system is given: four pods, each with the fields that a training pod usually has."""

PODS_PER_JOB = 4


def pod_spec(container, scheduler):
    """`scheduler`: no scheduler has the name "nobody", so its pods remain pending and unchanged."""
    return {
        "schedulerName": scheduler,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": container,
            "image": "registry.example/team/trainer:1.2.3",
            "command": ["oarlock-trainer", "--config", "/etc/trainer/trainer.yaml"],
            "env": [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(6)],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        }],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
