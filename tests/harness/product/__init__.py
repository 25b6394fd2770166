"""The real product, started as a person starts it, with access to its processes; see product.py."""

from __future__ import annotations

from tests.harness.product.client import Client, Refused, job_spec
from tests.harness.product.product import Product

__all__ = ["Client", "Product", "Refused", "job_spec"]
