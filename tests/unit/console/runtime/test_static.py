"""Static files: each has a name with its digest, is packed, lives a year in browsers, and is served by web."""

from __future__ import annotations

import gzip
import os
import re
import stat
import threading
from pathlib import Path

import brotli
import pytest
from django.template.autoreload import reset_loaders
from django.templatetags.static import static

from console.runtime.static_files import build
from console.runtime.static_files.serving import StaticFilesMiddleware
from console.templatetags import display

ROOT = Path(__file__).resolve().parents[4]
HASHED = re.compile(r"\.[0-9a-f]{12}\.\w+$")
YEAR = "max-age=31536000, public, immutable"
NAMED = re.compile(r"{%\s*static '([^']+)'")
# A sync client ends each request as a server does, which looks at the database connection.
pytestmark = pytest.mark.django_db
# Each way to name another module. Django looks for plain forms by a pattern: here anything like an import is found.
IMPORTS = re.compile(r"""\b(?:from|import)\s*\(?\s*["']([./][^"']+)["']""")


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return tmp_path_factory.mktemp("builds")


@pytest.fixture
def prepared(settings, builds):
    """The product's settings for static files, with builds in a directory of this test file's own."""
    settings.STATIC_BUILDS = builds
    settings.WHITENOISE_AUTOREFRESH = settings.WHITENOISE_USE_FINDERS = False
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "console.runtime.static_files.build.HashedFiles"}
    }
    # Icons, and the parts of templates that are kept, have the addresses of tests before this one.
    forget_addresses()
    yield build.ready()
    forget_addresses()


def forget_addresses():
    reset_loaders()
    for kept in (display.icon, display._badge):
        kept.cache_clear()


def test_every_file_that_a_template_names_is_prepared(prepared):
    named = {
        name for path in (ROOT / "templates").rglob("*.html") for name in NAMED.findall(path.read_text())
    }
    assert len(named) > 8
    for name in named:
        assert HASHED.search(static(name)), name
        assert (prepared / static(name).removeprefix("/static/")).is_file()


def test_every_address_of_a_file_in_a_page_has_a_digest_and_lives_a_year(prepared, client):
    page = client.get("/nothing-is-here").content.decode()
    addresses = re.findall(r'(?:src|href)="(/static/[^"#]+)', page)
    assert len(addresses) > 5
    for address in addresses:
        answer = client.get(address)
        assert HASHED.search(address) and answer.status_code == 200, address
        assert answer.headers["Cache-Control"] == YEAR, address


def test_modules_import_each_other_by_their_hashed_names(prepared):
    """So no browser ever runs a new module with an old one that it kept."""
    scripts = [
        path for path in prepared.rglob("*") if path.suffix in (".js", ".mjs") and HASHED.search(path.name)
    ]
    found = [(path, name) for path in scripts for name in IMPORTS.findall(path.read_text())]
    assert len(found) > 8
    for path, name in found:
        assert HASHED.search(name) and (path.parent / name).is_file(), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    ("asked", "coding", "unpacked"), [("gzip, deflate, br", "br", brotli), ("gzip", "gzip", gzip)]
)
async def test_xterm_is_sent_compressed(prepared, async_client, asked, coding, unpacked):
    """Warnings are errors in tests, and a streamed file would warn under ASGI."""
    answer = await async_client.get(static("npm/xterm/lib/xterm.mjs"), headers={"Accept-Encoding": asked})
    assert answer.headers["Content-Encoding"] == coding and answer.headers["Vary"] == "Accept-Encoding"
    assert len(answer.content) == int(answer.headers["Content-Length"]) < 90_000
    source = ROOT / "node_modules/@xterm/xterm/lib/xterm.mjs"
    assert unpacked.decompress(answer.content) == source.read_bytes()


async def test_a_browser_that_unpacks_nothing_gets_plain_files_and_asks_again_for_nothing(
    prepared, async_client
):
    answer = await async_client.get(static("npm/xterm/lib/xterm.mjs"))
    assert "Content-Encoding" not in answer.headers and len(answer.content) > 300_000
    later = {"If-Modified-Since": answer.headers["Last-Modified"]}
    assert (await async_client.get(static("npm/xterm/lib/xterm.mjs"), headers=later)).status_code == 304


@pytest.mark.parametrize("name", ["log.js", "log.0123456789ab.js"])
def test_a_page_of_another_version_gets_the_file_as_it_is_now(prepared, client, name):
    """It was loaded before an upgrade, or comes from a machine that has another version."""
    answer = client.get(f"/static/{name}")
    assert answer.content == (ROOT / "static/log.js").read_bytes()
    assert answer.headers["Cache-Control"] == "max-age=0, public"


@pytest.mark.parametrize("path", ["nothing.js", "nothing.0123456789ab.js", "../settings.py", "staticfiles"])
def test_what_is_no_static_file_is_not_found(prepared, client, path):
    assert client.get(f"/static/{path}").status_code == 404


def test_a_changed_file_gets_another_name(prepared, settings, tmp_path):
    """And so does each file that names it, but no other."""
    for name, text in {
        "a.js": "export const a = 1;\n",
        "b.js": 'import { a } from "./a.js";\n',
        "c.js": "c();\n",
    }.items():
        (tmp_path / name).write_text(text)
    settings.STATICFILES_DIRS = [tmp_path]
    before = build.HashedFiles(build.ready()).hashed_files
    (tmp_path / "a.js").write_text("export const a = 2;\n")
    after = build.HashedFiles(build.ready()).hashed_files
    assert {name for name in before if before[name] != after[name]} == {"a.js", "b.js"}


def test_a_script_that_names_a_file_that_is_not_there_is_told(prepared, settings, tmp_path):
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\n')
    settings.STATICFILES_DIRS = [tmp_path]
    with pytest.raises(RuntimeError, match="b.js cannot be prepared: The file 'a.js'"):
        build.ready()
    assert not list(build.directory().parent.glob(".new-*"))


@pytest.fixture
def few(prepared, settings, tmp_path):
    """A directory for builds of two files of ours: packing all of them takes two seconds of processor time."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.js").write_text("export const a = 1;\n")
    (files / "b.js").write_text('import { a } from "./a.js";\n')
    settings.STATICFILES_DIRS = [files]
    settings.STATIC_BUILDS = tmp_path / "builds"
    return settings.STATIC_BUILDS


def test_several_processes_may_prepare_at_once(few, monkeypatch):
    built, made, alone = threading.Barrier(3), [], build.build

    def build_beside_others(into):
        alone(into)
        # Nobody's build has its name until all three are ready.
        built.wait(60)

    def prepare():
        made.append(build.ready())

    monkeypatch.setattr(build, "build", build_beside_others)
    threads = [threading.Thread(target=prepare) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(made) == {build.directory()} and len(made) == 3
    assert [path.name for path in few.iterdir()] == [build.directory().name]


def test_another_user_than_the_one_who_installed_can_read_the_files(few):
    before = os.umask(0o077)
    try:
        made = build.ready()
    finally:
        os.umask(before)
    for path in (made.parent, made, *made.rglob("*")):
        assert path.stat().st_mode & stat.S_IROTH, path


def test_only_the_newest_builds_are_kept(tmp_path):
    builds = [tmp_path / str(number) for number in range(build.KEPT + 2)]
    for number, path in enumerate(builds):
        path.mkdir()
        os.utime(path, (number, number))
    build.remove_old(builds[0])
    assert {path.name for path in tmp_path.iterdir()} == {"0", *(str(n) for n in range(2, build.KEPT + 2))}


def test_a_developer_gets_the_files_as_they_are(settings, rf):
    """With TRAINYARD_DEBUG nothing is prepared: a change is seen at the next request."""
    settings.WHITENOISE_AUTOREFRESH = settings.WHITENOISE_USE_FINDERS = True
    answer = StaticFilesMiddleware(lambda request: pytest.fail("not served"))(rf.get("/static/log.js"))
    assert answer.content == (ROOT / "static/log.js").read_bytes()
