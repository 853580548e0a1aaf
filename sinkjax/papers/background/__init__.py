"""Background papers: massive activations, streaming, compression, quantisation, activation patching."""
