"""The algorithms of stencils."""
