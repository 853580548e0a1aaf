"""The trigger task (Ran-Milo 2026): at one position, average the tokens before it.

`data.py` generates the sequences on the device, and `task.py` has the loss. `capped.py` holds or shifts the attention on BOS, in
training or after it.
"""
