"""Studies as values (conditions, measurements and claims), and the framework that runs them.

A study is written with the words in `sinkjax.studies.vocabulary`; docs/add-a-study.md shows how.
"""
