"""Runtime environment: devices, joined processes, signals, progress bars and optional packages.

Nothing here depends on models, and every other folder may use it. It is where sinkjax meets the machine: the devices, how a run
is interrupted, and how its progress is shown.
"""
