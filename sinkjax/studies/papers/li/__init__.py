"""Studies of Li et al. 2026: variance discrepancy, super neurons and dimension disparity."""
