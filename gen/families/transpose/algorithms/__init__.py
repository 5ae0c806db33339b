"""The algorithms of transposes."""
