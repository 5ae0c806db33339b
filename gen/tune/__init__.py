"""Chooses which variants to try, and tries them: so far on the CPU, where nothing is measured."""
