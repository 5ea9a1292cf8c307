"""CUDA C++ kernels: compiled when first asked for, loaded through the driver, launched on torch's stream."""
