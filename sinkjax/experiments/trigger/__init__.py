"""Ran-Milo 2026 (arXiv 2603.11487): the trigger-conditional task, trained, measured and checked against the theorems."""
