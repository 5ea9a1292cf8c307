"""What is true without running anything: models, number formats, GPUs, links between them, and workloads."""
