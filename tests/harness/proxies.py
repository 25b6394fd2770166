"""nginx and haproxy in front of the product, as docs/operating.md says that they are set up."""

from __future__ import annotations

import shutil
import socket

from tests.harness.services import Daemon

# The lines of docs/operating.md; the paths are the harness's own, and so is the single process: workers have another
# user, and would outlive a harness that is killed.
NGINX = """
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{
        listen 127.0.0.1:{port};
        client_header_timeout 10s;
        client_body_timeout 10s;
        client_max_body_size 8m;
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
        location ~ ^/(upload/storage/|api/v1/projects/[^/]+/(artifacts|buckets/)|projects/[^/]+/storage/) {{
            proxy_pass http://127.0.0.1:{upstream};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_request_buffering off;
            proxy_buffering off;
            client_max_body_size 0;
            client_body_timeout 60s;
        }}
    }}
}}
"""
HAPROXY = """
global
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout http-request 10s
frontend front
    bind 127.0.0.1:{port}
    option forwardfor
    http-request set-header X-Forwarded-Proto http
    default_backend web
backend web
    server web 127.0.0.1:{upstream}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Proxy(Daemon):
    config = ""

    def __init__(self, upstream):
        super().__init__()
        self.port = free_port()
        (self.dir / "config").write_text(self.config.format(dir=self.dir, port=self.port, upstream=upstream))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Nginx(Proxy):
    name = "nginx"
    config = NGINX

    def command(self):
        path = shutil.which("nginx") or "/usr/sbin/nginx"
        return [path, "-p", str(self.dir), "-c", str(self.dir / "config"), "-e", str(self.dir / "error.log")]


class Haproxy(Proxy):
    name = "haproxy"
    config = HAPROXY

    def command(self):
        return [shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", str(self.dir / "config")]
