"""What happened on the GPU, read from a profiler's file: exact to the nanosecond, in columns, in bounded memory.

`read.read_trace` is the door to every form of file, `ranks.read_ranks` to the files of several ranks.
"""
