"""What the tests stand on: real hosts, real services, the real product, and the invariants that judge them."""
