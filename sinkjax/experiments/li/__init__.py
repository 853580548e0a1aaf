"""The experiments of Li, Jiang, Sun and Hu 2026, "The Structural Origin of Attention Sink" (arXiv 2605.06611)."""
