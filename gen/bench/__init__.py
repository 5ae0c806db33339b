"""Evidence: gen's kernels against other libraries, on the same work in the same run."""
