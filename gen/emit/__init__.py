"""From variants to `.cu` files."""
