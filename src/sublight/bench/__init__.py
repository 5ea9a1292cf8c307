"""Agreement, then time: kernels, the other rows of a step, and collectives, on the machine at hand."""
