"""An S3 to store files in: moto's server, a process of its own that keeps everything in memory."""

from __future__ import annotations

import socket
import sys

import boto3

from tests.harness.services import Daemon


class S3Server(Daemon):
    name = "s3"
    bucket = "kept-files"
    # The keys of nobody: moto takes any.
    credentials = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}

    def __init__(self):
        super().__init__()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.more_environment = {"MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1 << 20)}

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self):
        """As TRAINYARD_STORAGE_URL has it."""
        return f"s3://{self.bucket}/lab?endpoint={self.endpoint}"

    def command(self):
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start(self):
        super().start()
        self.client().create_bucket(Bucket=self.bucket)
        return self

    def client(self):
        keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "not-a-secret"}
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **keys)

    def names(self):
        """Every stored key, and every upload in parts that has not ended."""
        client = self.client()
        kept = client.list_objects_v2(Bucket=self.bucket).get("Contents", ())
        begun = client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ())
        return sorted(each["Key"] for each in kept), sorted(each["Key"] for each in begun)
