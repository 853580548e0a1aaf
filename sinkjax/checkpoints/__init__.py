"""Checkpoints: Hugging Face folders and hub ids, GGUF files and presets, as parameters, a config and a tokenizer."""
