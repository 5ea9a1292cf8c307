"""What benchmarks found. Nothing here imports torch, so that any machine can show and join it."""
