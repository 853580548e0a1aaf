"""Measurements as data: what to measure (`probe`), the reductions inside the forward pass, and the record that comes out."""
