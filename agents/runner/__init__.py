"""The runner: Trainyard's one program on a host. Only the standard library, Python 3.7 or newer, Linux.

It keeps processes alive without an SSH connection, says what became of them, and ships their logs. It decides
nothing about jobs. `runner_archive.py` makes one file of this package, which is what hosts are given: so it imports
nothing of ours from elsewhere, and nothing at all once it has begun, for its file may be gone by then. The order of
its modules, from the top down, stands in tests/architecture/laws.py; `agents/README.md` tells the wire, the host's
directory layout and a run's life in full.

Who is who on a host, from the outside in:

    serve ── one per connection; reads orders, sends facts and logs; may die at any moment, nobody minds
    outer keeper ── forked from serve, a session of its own; holds the run's lock; waits for the inner one
      inner keeper ── starts the replica, waits for it, writes its facts, stops it, bounds its log
        replica ── the command, in a session of its own, writing straight into its log file

Both keepers are child subreapers: whoever of them is killed, the other one inherits the replica and its true exit.
"""
