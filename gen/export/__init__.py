"""From a spec to a library of C++ that chooses and launches its kernels without Python."""
