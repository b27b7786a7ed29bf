"""The top-level directories with C++ of the product."""
ROOMS = ("common", "http", "yaml", "fields", "recovery", "ddp", "api", "kube", "operator", "trainer", "workloads", "cli")
