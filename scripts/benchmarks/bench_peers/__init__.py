"""The sides of `bench_sweep.py`: each library in a process of its own, asked for the same numbers, timed in turn."""
