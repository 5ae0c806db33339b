"""Benchmarks, and checks that take long or need a GPU; no part of what is installed."""
