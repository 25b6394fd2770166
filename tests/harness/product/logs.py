"""The stored logs of all runs, for evidence. A log is compared once, and again when it is stored in another way."""

from __future__ import annotations

# When a log is rolled, joined or shortened, one of these values changes.
PLACES = """
SELECT r.id, r.job_id, m.name AS replica, r.log_stored, r.log_rolled, r.log_digest_here,
  (SELECT count(*) FROM jobs_logpiece p WHERE p.run_id = r.id) AS pieces,
  (SELECT count(*) FROM jobs_logsegment s WHERE s.run_id = r.id) AS segments
FROM jobs_run r JOIN jobs_replica m ON m.id = r.replica_id WHERE r.log_stored > 0
"""


class StoredLogs:
    def __init__(self, product):
        self.product = product
        self.compared = {}  # run -> how it was stored when it was compared and right
        self.last_read = {}

    def read(self):
        """Return the bytes of each run that is to be compared now, and the set of the others."""
        lies = {row["id"]: row for row in self.product.query(PLACES)}
        unchanged = {run for run, row in lies.items() if self.compared.get(run) == row}
        self.last_read = {run: row for run, row in lies.items() if run not in unchanged}
        return {run: self.bytes_of(row) for run, row in self.last_read.items()}, unchanged

    def bytes_of(self, row):
        return self.product.client.log(row["job_id"], row["replica"], row["id"], patience=60)

    def mark_compared(self):
        self.compared.update(self.last_read)
