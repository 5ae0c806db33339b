"""Comparison with other libraries: the same work, checked, and timed in alternating rounds."""
