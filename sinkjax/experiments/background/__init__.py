"""Experiments of the background papers: Sun et al., Xiao et al., Queipo-de-Llano et al., and what follows from them."""
