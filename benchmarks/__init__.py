"""Timings of the product, every side in one run. `python -m benchmarks` lists them; `make bench` runs them
all.
"""
