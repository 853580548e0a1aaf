"""One module per family, found by `sinkjax/checkpoints/family.py`; each defines a `FAMILY`."""
