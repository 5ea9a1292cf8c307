"""`sublight bench ops`: every other row of a step, by the library that an engine would call."""
