"""The Reduction Server: a reducer, and what an unmodified program with DistributedDataParallel finds it by.

These modules are put on hosts as files of their own (`files_on_hosts.py`), in a package named trainyard_reduction,
because the Python of the job runs them: `sitecustomize` in each trainer's processes, `reducer` as the program of
workerpool2.
"""
