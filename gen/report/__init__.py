"""What kernels do and why they are fast, in words and tables; prints nothing."""
