"""Measurements as data: the request (`probe`), the reductions inside the forward pass, and the resulting record."""
