"""The addresses of the pages of hosts, GPUs, locations, machine types and recovery mode."""

from __future__ import annotations

from django.urls import path

from console.views.hosts import (
    bulk,
    edit,
    gpus,
    hosts,
    keys,
    locations,
    machine_types,
    maintenance,
    occupancy,
    recovery,
)
from console.views.projects import image_registries

urlpatterns = [
    path("hosts/", hosts.hosts, name="hosts"),
    path("hosts/gpus", gpus.gpus, name="gpus"),
    path("hosts/occupancy", occupancy.occupancy, name="occupancy"),
    path("hosts/occupancy.csv", occupancy.as_csv, name="occupancy-csv"),
    path("hosts/bulk", bulk.bulk, name="bulk-hosts"),
    path("hosts/add", hosts.add, name="add-host"),
    path("hosts/paste", hosts.paste, name="paste-hosts"),
    path("hosts/keys", keys.keys, name="host-keys"),
    path("hosts/keys/compare", keys.compare, name="compare-keys"),
    path("hosts/keys/accept", keys.accept, name="accept-keys"),
    path("hosts/<int:host_id>/", hosts.host, name="host"),
    path("hosts/<int:host_id>/edit", edit.edit, name="edit-host"),
    path("hosts/<int:host_id>/accept", hosts.accept, name="accept-key"),
    path("hosts/<int:host_id>/check", hosts.check, name="check-host"),
    path("hosts/<int:host_id>/remove", hosts.remove, name="remove-host"),
    path("hosts/<int:host_id>/maintenance", maintenance.maintenance, name="maintain-host"),
    path("hosts/<int:host_id>/cordon", maintenance.cordon, name="cordon-host"),
    path("hosts/<int:host_id>/drain", maintenance.drain, name="drain-host"),
    path("hosts/<int:host_id>/contain", maintenance.contain, name="contain-host"),
    path("hosts/<int:host_id>/network", maintenance.network, name="network-host"),
    path("hosts/<int:host_id>/logins", maintenance.set_logins, name="host-logins"),
    path("hosts/<int:host_id>/gone", maintenance.declare_gone, name="declare-gone"),
    path("hosts/<int:host_id>/uncordon", maintenance.uncordon, name="uncordon-host"),
    path("recovery/", recovery.recovery, name="recovery"),
    path("recovery/begin", recovery.begin, name="begin-recovery"),
    path("recovery/confirm", recovery.confirm, name="confirm-recovery"),
    path("locations/", locations.page, name="locations"),
    path("locations/<slug:location>/storage", locations.share, name="share-location"),
    path("locations/<slug:location>/images", locations.alias, name="alias-image"),
    path("locations/<slug:location>/registries", image_registries.of_location, name="location-registries"),
    path("locations/<slug:location>/projects", locations.bind, name="bind-location"),
    path("machines/", machine_types.machines, name="machines"),
    path("machines/<int:type_id>/remove", machine_types.remove, name="remove-machine-type"),
    path("hosts/<int:host_id>/kept/<slug:kind>/<slug:digest>", hosts.discard_kept, name="discard-kept"),
    path("hosts/<int:host_id>/gpus/<int:gpu_id>/<slug:what>", hosts.gpu_act, name="gpu-act"),
    path("hosts/<int:host_id>/strays/<int:stray_id>/<slug:act>", hosts.stray_act, name="stray-act"),
]
