"""The floor against the measured step: how large the gap is, what is known of it, and what to measure next."""
