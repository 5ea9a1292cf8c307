"""Arithmetic only: what a decode step must read, multiply and send, and how long the hardware needs for that."""
