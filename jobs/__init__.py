"""Mains for spark-submit and the `delayline` command: parse, build, start, wait. Executors import none of it."""
