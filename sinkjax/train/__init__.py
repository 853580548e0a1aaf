"""The training loop of all tasks: `loop.train(task, folder)` trains many runs at once.

`task.py` defines what a task is; the tasks themselves, and `train(config, folder)`, are in `sinkjax.tasks`.
"""
