"""Checkpoints: Hugging Face folders and hub ids, GGUF files and presets, as parameters, a config and a tokenizer.

`load.py` has the one call that reads all of them, and `export.py` and `native.py` write models. Each family of architectures is
a module in `families/`, which names the settings and tensors of its files.
"""
