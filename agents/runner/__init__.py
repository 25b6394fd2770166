"""The runner: Trainyard's one program on a host. Only the standard library, Python 3.7 or newer, Linux.

It keeps processes alive without an SSH connection, reports what became of them, and ships their logs. It decides
nothing about jobs. `agents/ssh/runner_archive.py` makes one file of this package, which hosts get. So the package
imports nothing of ours from elsewhere, and nothing at all once it has begun, for its file may be gone by then. The
order of its modules, from the top down, is in tests/architecture/laws.py. `agents/README.md` describes the wire, the
host's directory and a run's life in full.

The processes on a host, from the outside in:

    serve ── one for each connection; reads orders, sends facts and logs; may die at any moment without harm
    outer keeper ── forked from serve, a session of its own; holds the run's locks; waits for the inner keeper
      inner keeper ── starts the replica, waits for it, writes its facts, stops it, bounds its log
        replica ── the command, in a session of its own, writing straight into its log file

A pair of keepers takes one run after the other. Both keepers are child subreapers: if one of them is killed, the other
one inherits the replica and its exit status.
"""
