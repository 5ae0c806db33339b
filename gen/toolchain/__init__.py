"""Turns CUDA C++ into machine code, and keeps what was compiled."""
