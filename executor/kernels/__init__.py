"""Small C++ kernels for a CPU, compiled at first use; everything works without them."""
