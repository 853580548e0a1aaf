"""The trigger task (Ran-Milo 2026): at one position, average the tokens before it."""
