"""The trigger task (Ran-Milo 2026): average what came before, at one position."""
