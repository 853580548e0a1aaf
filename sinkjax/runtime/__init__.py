"""Where the library runs: devices, processes that JAX joined, signals, progress bars, optional packages and shipped files.

Nothing here knows of models; every other folder may use it.
"""
