"""The experiments of Gu et al. 2025 on trained models (arXiv 2410.10781)."""
