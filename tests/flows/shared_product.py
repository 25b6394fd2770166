"""One fleet and one product at a time, shared by many tests and renewed after a failure."""

from __future__ import annotations

from tests.harness.hosts import Fleet
from tests.harness.product import Product

FLEET_SIZE = 3
DATA_MB = 700


class SharedProduct:
    """Starting a product takes seconds of processor time, so tests share one, and each leaves it as it found it."""

    def __init__(self):
        self.fleet = None
        self.product = None

    def product_of(self, shape):
        if self.product and self.product.shape != shape:
            self.clear()
        if not self.product:
            try:
                self.fleet = Fleet(FLEET_SIZE).boot()
                self.product = Product(shape, data_mb=DATA_MB if self.fleet.tier == "namespaces" else None)
                self.product.start().with_admin().with_hosts(self.fleet)
            except BaseException:
                self.clear()
                raise
        return self.product

    def clear(self):
        if self.product:
            self.product.close()
        if self.fleet:
            self.fleet.close()
        self.product = self.fleet = None


# One for each test process; flows and behaviour tests share it.
THE_STAGE = SharedProduct()
