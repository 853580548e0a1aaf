"""The training loop of all tasks: `loop.opened(task, folder, ...)` opens a training of many runs at once.

`task.py` defines a task; the tasks themselves, and `train(config, folder)`, are in `sinkjax.tasks`. The state of all runs is
committed at each checkpoint, so that a training that was killed continues with the same numbers.
"""
