"""Runtime environment: devices, joined processes, signals, progress bars, optional packages and shipped files.

Nothing here depends on models; every other folder may use it.
"""
