"""The engine of training, by one loop for every task: `loop.train(task, folder)` trains many runs at once.

What a task is says `task.py`; the tasks themselves, and `train(config, folder)` for one of their configs, are in `sinkjax.tasks`.
"""
