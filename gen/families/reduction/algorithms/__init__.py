"""The algorithms of reductions."""
