"""Runs of compute-sanitizer: what is run, how it is started, what is kept. The command is `bench/sanitize.py`."""
