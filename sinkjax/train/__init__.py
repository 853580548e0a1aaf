"""The training loop of all tasks: `loop.train(task, folder)` trains many runs at once.

`task.py` defines a task; the tasks themselves, and `train(config, folder)`, are in `sinkjax.tasks`.
"""
