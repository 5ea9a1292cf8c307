"""`sublight bench comm`: the collectives of a step between processes on this machine."""
