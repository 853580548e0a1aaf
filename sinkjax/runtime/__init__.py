"""Runtime environment: devices, joined processes, signals, progress bars, optional packages and shipped files.

Nothing here depends on models, and every other folder may use it. It is where sinkjax meets the machine: the devices, how a run
is interrupted, and how its progress is shown.
"""
