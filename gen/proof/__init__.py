"""Evidence that a variant computes what NumPy computes."""
