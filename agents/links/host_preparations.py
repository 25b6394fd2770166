"""What a host prepares for the control plane: the orders to it, and its reports."""

from __future__ import annotations

from collections.abc import Sequence

from agents.links.control_plane import ControlPlane
from agents.links.link import Link
from agents.links.orders import Order, Prepare


def send(link: Link, control_plane: ControlPlane, host_id: int, orders: Sequence[Order]) -> None:
    """Send what the host is to prepare. What is not wanted any more is not sent."""
    found = [order for order in orders if isinstance(order, Prepare)]
    if not found:
        return
    documents = control_plane.preparation_orders(host_id, [order.name for order in found])
    for order in found:
        if order.name in documents:
            link.send_order(order, documents[order.name])


def store(link: Link, control_plane: ControlPlane, host_id: int, token: int) -> bool:
    """Hand in the newest reports. True if there were any."""
    reports = link.preparation_reports()
    if reports:
        control_plane.store_preparations(host_id, token, reports)
    return bool(reports)
