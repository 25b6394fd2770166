"""`make bench`: the product measured beside its references, on the same machine in the same run. See README.md."""
