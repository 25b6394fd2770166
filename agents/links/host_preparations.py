"""What a host prepares for the control plane: the orders to it, and its reports."""

from __future__ import annotations

from collections.abc import Sequence

from agents.links.control_plane import ControlPlane
from agents.links.link import Link
from agents.links.orders import Order, Prepare, Unprepare


def send(link: Link, control_plane: ControlPlane, host_id: int, token: int, orders: Sequence[Order]) -> None:
    """Send what the host is to prepare, and what it is to end. The control plane is asked about both once more: what it
    is to prepare may be wanted no more, and what it is to end may be wanted again."""
    found = [order for order in orders if isinstance(order, Prepare)]
    documents = control_plane.preparation_orders(host_id, [each.name for each in found]) if found else {}
    for order in found:
        if order.name in documents:
            link.send_order(order, documents[order.name])
    needless = [order for order in orders if isinstance(order, Unprepare)]
    names = [each.name for each in needless]
    given_up = control_plane.give_up_preparations(host_id, token, names) if needless else ()
    for each in needless:
        if each.name in given_up:
            link.send_order(each)


def store(link: Link, control_plane: ControlPlane, host_id: int, token: int) -> bool:
    """Hand in the newest reports. True if something else may be wanted of the host now."""
    reports = link.preparation_reports()
    if reports:
        control_plane.store_preparations(host_id, token, reports)
    return not all(each.at_work for each in reports)
