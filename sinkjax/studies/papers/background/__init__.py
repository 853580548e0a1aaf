"""Studies of the background papers: massive activations, streaming, compression, quantisation, activation patching."""
