"""One module a family, found by `sinkjax/checkpoints/family.py`; it holds a `FAMILY`."""
