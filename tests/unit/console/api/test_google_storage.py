"""Google's own storage client, unmodified, works with a product: over HTTP, through its own web process."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import socket
import threading
from urllib.parse import urlsplit

import pytest
import requests
from google.api_core import exceptions
from google.oauth2.credentials import Credentials

from tests.harness.product import Product
from tests.harness.proxies import Nginx
from tests.harness.wait_and_processes import wait_for

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def product():
    with Product("embedded", BODY_S=4) as product:
        product.with_admin()
        product.command("quota", "set", "storage-gb", "50", "--project", "default")
        wait_for(
            lambda: requests.get(f"{product.url}/healthz", timeout=30).ok, "the product", dump=product.tail
        )
        yield product


@pytest.fixture(scope="module")
def storage():
    """Imported here and not at the top: the import takes seconds, and every test process collects this file."""
    return importlib.import_module("google.cloud.storage")


@pytest.fixture
def client(product, storage, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", product.url)
    monkeypatch.setenv("NO_PROXY", "*")
    return storage.Client(project="default", credentials=Credentials(product.secrets["token"]))


@pytest.fixture
def bucket(client, request):
    name = "b-" + hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
    made = client.create_bucket(name)
    yield made
    for blob in client.list_blobs(name):
        blob.delete()
    made.delete()


def web_memory(product):
    (pid,) = product.processes.of("web")
    with open(f"/proc/{pid}/status") as status:
        return int(status.read().partition("VmRSS:")[2].split()[0]) / 1024


def uploading(product):
    return os.listdir(product.data / "uploads")


def pattern(size):
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def test_objects_are_stored_listed_read_in_ranges_copied_and_deleted(client, bucket):
    blob = bucket.blob("runs/7/model.bin")
    blob.metadata = {"step": "1000"}
    blob.upload_from_string(b"0123456789", content_type="application/x-model")
    assert (blob.size, blob.crc32c) == (10, "KAwGng==")
    for name in ("runs/7/log.txt", "runs/8/a", "é/模型"):
        bucket.blob(name).upload_from_string(name)
    assert [each.name for each in client.list_blobs(bucket, prefix="runs/7/")] == [
        "runs/7/log.txt",
        "runs/7/model.bin",
    ]
    pages = client.list_blobs(bucket, delimiter="/", max_results=50, page_size=1)
    assert list(pages) == [] and pages.prefixes == {"runs/", "é/"}
    assert bucket.blob("é/模型").download_as_text() == "é/模型"
    assert blob.download_as_bytes(start=2, end=4) == b"234"
    found = bucket.get_blob("runs/7/model.bin")
    assert (found.content_type, found.metadata) == ("application/x-model", {"step": "1000"})
    assert bucket.get_blob("nothing") is None and not bucket.blob("nothing").exists()
    found.metadata = {"step": "2000"}
    found.patch()
    found.reload()
    assert found.metadata == {"step": "2000"} and found.metageneration == 2
    bucket.copy_blob(found, bucket, "copy")
    joined = bucket.blob("joined")
    joined.compose([found, bucket.blob("copy")])
    assert joined.download_as_bytes() == b"0123456789" * 2
    found.delete()
    assert not found.exists()
    with pytest.raises(exceptions.NotFound):
        found.delete()


def test_a_generation_that_was_named_guards_an_object(bucket):
    blob = bucket.blob("lock")
    blob.upload_from_string(b"mine", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").upload_from_string(b"theirs", if_generation_match=0)
    assert blob.download_as_bytes() == b"mine"
    with pytest.raises(exceptions.PreconditionFailed):
        blob.delete(if_generation_match=1)


@pytest.mark.parametrize("chunk", [None, MIB])
def test_large_objects_come_whole_and_in_chunks(bucket, chunk):
    """More than 8 MiB: Google's client begins a resumable upload, and sends all at once or chunk by chunk."""
    data = pattern(9 * MIB + 7)
    blob = bucket.blob("large", chunk_size=chunk)
    blob.upload_from_file(io.BytesIO(data), size=len(data), checksum="crc32c")
    assert blob.size == len(data)
    read = bucket.blob("large", chunk_size=chunk)
    assert hashlib.sha256(read.download_as_bytes(checksum="crc32c")).digest() == hashlib.sha256(data).digest()


def test_a_stream_of_unknown_length_is_stored(bucket):
    with bucket.blob("stream").open("wb", chunk_size=256 * 1024) as file:
        for _ in range(10):
            file.write(pattern(100_000))
    with bucket.blob("stream").open("rb") as file:
        assert file.read() == pattern(100_000) * 10


def test_an_upload_that_broke_off_goes_on_where_it_stopped(product, bucket):
    """The connection is cut in the middle of a body; what had come is kept, and the rest is sent."""
    data = pattern(3 * MIB)
    blob = bucket.blob("broken")
    address = blob.create_resumable_upload_session(size=len(data))
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), 30) as cut:
        head = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        head += f"Content-Length: {len(data)}\r\nContent-Range: bytes 0-{len(data) - 1}/{len(data)}\r\n\r\n"
        cut.sendall(head.encode() + data[: 2 * MIB])
        wait_for(
            lambda: any((product.data / "uploads" / name).stat().st_size for name in uploading(product)),
            "bytes",
        )
    asked = {"Content-Range": f"bytes */{len(data)}"}

    def came():
        answer = requests.put(address, headers=asked, timeout=30)
        return answer if answer.status_code == 308 and "Range" in answer.headers else None

    answer = wait_for(came, "the first bytes to be kept")
    begin = int(answer.headers["Range"].removeprefix("bytes=0-")) + 1
    assert 0 < begin <= 2 * MIB
    rest = {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
    done = requests.put(address, data=data[begin:], headers=rest, timeout=30)
    assert done.status_code == 200 and done.json()["size"] == str(len(data))
    assert bucket.blob("broken").download_as_bytes() == data
    # The answer was lost: the same question has the same answer.
    assert requests.put(address, headers=asked, timeout=30).json()["generation"] == done.json()["generation"]


def test_wrong_checksums_are_refused_and_nothing_is_stored(product, bucket):
    wrong = {"Content-Type": "application/json", "Authorization": f"Bearer {product.secrets['token']}"}
    begin = f"{product.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable&name=wrong"
    address = requests.post(begin, json={"crc32c": "AAAAAA=="}, headers=wrong, timeout=30).headers["Location"]
    answer = requests.put(address, data=b"other bytes", timeout=30)
    assert answer.status_code == 400 and "crc32c" in answer.json()["error"]["message"]
    assert requests.put(address, data=b"other bytes", timeout=30).status_code == 404
    media = f"{product.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=wrong"
    headers = wrong | {"X-Goog-Hash": "crc32c=AAAAAA=="}
    assert requests.post(media, data=b"other bytes", headers=headers, timeout=30).status_code == 400
    assert not bucket.blob("wrong").exists()


def test_the_token_may_stand_in_the_address(product, storage, bucket, monkeypatch):
    """What a client does that is given nothing but STORAGE_EMULATOR_HOST."""
    parts = urlsplit(product.url)
    address = f"http://token:{product.secrets['token']}@{parts.netloc}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    plain = storage.Client(project="default")
    plain.bucket(bucket.name).blob("a").upload_from_string(b"by address")
    plain.bucket(bucket.name).blob("large").upload_from_string(pattern(9 * MIB))
    assert plain.bucket(bucket.name).blob("a").download_as_bytes() == b"by address"


def test_without_a_token_nothing_is_read_or_written_and_the_cure_is_told(
    product, storage, bucket, monkeypatch
):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", product.url)
    plain = storage.Client(project="default")
    with pytest.raises(exceptions.Forbidden, match="storage.Client\\(credentials="):
        plain.bucket(bucket.name).blob("a").upload_from_string(b"x")
    with pytest.raises(exceptions.Forbidden):
        list(plain.list_blobs(bucket.name))
    answer = requests.post(
        f"{product.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=a",
        data=b"x" * MIB,
        timeout=30,
    )
    assert answer.status_code == 401


def test_strangers_learn_nothing(product, storage, bucket, monkeypatch):
    bucket.blob("a").upload_from_string(b"x")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", product.url)
    stranger = storage.Client(project="default", credentials=Credentials(product.stranger))
    for act in (
        lambda: stranger.get_bucket(bucket.name),
        lambda: list(stranger.list_blobs(bucket.name)),
        lambda: stranger.bucket(bucket.name).blob("a").download_as_bytes(),
        lambda: stranger.bucket(bucket.name).blob("a").upload_from_string(b"y"),
        lambda: stranger.bucket(bucket.name).blob("a").delete(),
        lambda: stranger.create_bucket("another-bucket"),
    ):
        with pytest.raises(exceptions.NotFound):
            act()
    assert bucket.blob("a").download_as_bytes() == b"x"


def test_uploads_leave_memory_flat_and_nothing_behind(product, bucket):
    before = web_memory(product)
    token = {"Authorization": f"Bearer {product.secrets['token']}"}
    address = f"{product.url}/api/v1/projects/default/buckets/{bucket.name}/objects/big"
    piece = pattern(MIB)
    highest = 0.0

    def body():
        nonlocal highest
        for at in range(200):
            if at % 20 == 19:
                highest = max(highest, web_memory(product))
            yield piece

    answer = requests.put(address, data=body(), headers=token, timeout=120)
    assert answer.status_code == 200 and answer.json()["sizeBytes"] == str(200 * MIB), answer.text
    assert answer.json()["sha256"] == hashlib.sha256(piece * 200).hexdigest()
    assert highest - before < 40
    assert os.listdir(product.data / "uploads") == []


@pytest.mark.parametrize("name", ["..", "a/../b", "a%2F..%2Fb", "x" * 1025, "a%0Ab", "%C2%85", "a//b"])
def test_names_that_no_file_could_have_are_refused_before_a_byte_is_taken(product, bucket, name):
    token = {"Authorization": f"Bearer {product.secrets['token']}"}
    address = f"{product.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name={name}"
    answer = requests.post(address, data=b"x", headers=token, timeout=30)
    assert answer.status_code == 400, answer.text
    assert "name" in answer.json()["error"]["message"]


def test_a_huge_size_is_refused_before_it_comes(product, bucket):
    token = f"Authorization: Bearer {product.secrets['token']}\r\n"
    parts = urlsplit(product.url)
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=a"
    for size, status in ((10**12, b"413"), (99 * 10**9, b"403")):
        with socket.create_connection((parts.hostname, parts.port), 30) as client:
            client.sendall(
                f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{token}Content-Length: {size}\r\n\r\n".encode()
            )
            assert client.recv(4096).split(b" ")[1] == status


def test_a_sender_that_dawdles_is_left_and_delays_nobody(product, bucket):
    """Its first bytes come, then one at a time: it has BODY_S for each quarter of a MiB."""
    token = f"Authorization: Bearer {product.secrets['token']}\r\n"
    parts = urlsplit(product.url)
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=a"
    slow = []
    for _ in range(20):
        client = socket.create_connection((parts.hostname, parts.port), 60)
        client.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{token}Content-Length: 1000000\r\n\r\nabc".encode()
        )
        slow.append(client)
    quick = threading.Event()
    assert requests.get(f"{product.url}/healthz", timeout=3).ok
    quick.set()
    for client in slow:
        assert client.recv(4096).split(b" ")[1] == b"408"
        client.close()
    wait_for(lambda: os.listdir(product.data / "uploads") == [], "what they sent to be removed")


def test_uploads_come_through_a_proxy_as_the_documents_set_it_up(product, storage, bucket, monkeypatch):
    data = pattern(20 * MIB)
    proxy = Nginx(urlsplit(product.url).port)
    try:
        proxy.start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        client = storage.Client(project="default", credentials=Credentials(product.secrets["token"]))
        client.bucket(bucket.name).blob("a").upload_from_string(data)
        address = f"{proxy.url}/api/v1/projects/default/buckets/{bucket.name}/objects/b"
        headers = {"Authorization": f"Bearer {product.secrets['token']}"}
        assert requests.put(address, data=data, headers=headers, timeout=60).status_code == 200
        assert client.bucket(bucket.name).blob("b").download_as_bytes() == data
    finally:
        proxy.close()


@pytest.mark.parametrize("kind", ["text/html", "application/json", "text/csv"])
def test_a_kind_that_pages_are_packed_in_arrives_as_it_is(bucket, kind):
    """Pages and JSON are compressed on their way. The checksum of an object is that of its own bytes."""
    data = b"<p>the same again</p>" * 1000
    bucket.blob("a").upload_from_string(data, content_type=kind)
    assert bucket.blob("a").download_as_bytes(checksum="crc32c") == data
    assert bucket.blob("a").download_as_bytes(start=3, end=10) == data[3:11]


def test_what_is_downloaded_is_never_shown(product, bucket):
    bucket.blob("a.html").upload_from_string("<script>alert(1)</script>", content_type="text/html")
    token = {"Authorization": f"Bearer {product.secrets['token']}"}
    address = f"{product.url}/download/storage/v1/b/{bucket.name}/o/a.html?alt=media"
    answer = requests.get(address, headers=token, timeout=30)
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
