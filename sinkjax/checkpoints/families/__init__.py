"""One module per family, found by `sinkjax/checkpoints/family.py`; each defines a `FAMILY`.

A `FAMILY` reads a Hugging Face config.json, names the tensors, and lists released sizes and the keys of GGUF files. A new
family is a new module here, plus a record in `sinkjax/model/` if its architecture has a new part.
"""
