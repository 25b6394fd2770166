"""The real product, started as a person starts it, with its processes within reach of signals; see product.py."""

from __future__ import annotations

from tests.harness.product.client import Client, Refused, job_spec
from tests.harness.product.product import Product

__all__ = ["Client", "Product", "Refused", "job_spec"]
