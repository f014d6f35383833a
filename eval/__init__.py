"""Workloads, load generation, peers and reports."""
