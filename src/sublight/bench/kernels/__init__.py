"""`sublight bench kernels`: a layer of experts at a model's shapes, every kernel and every peer."""
