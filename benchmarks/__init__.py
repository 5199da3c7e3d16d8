"""Benchmarks: named workloads, one command each, the machine, the parameters and the baselines of the same run."""
