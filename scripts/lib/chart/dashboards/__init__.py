"""The chart's Grafana dashboards, built with the Grafana Foundation SDK."""
