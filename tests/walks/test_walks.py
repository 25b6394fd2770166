"""People who use the product for what they came for, in a real browser, with real hosts.

`make test-slow` walks once with each of them. `make walks` does so in light and dark, at 1280 and 360 px, in two
languages.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from html import unescape
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest
from playwright.sync_api import expect

from agents.ssh.host_keys import fingerprint
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for
from tests.walks.look import ShellTab, Walk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.needs_namespaces]

SECRET = "hf_0123456789abcdef"
TRAINS = """import os, time
print("token of", len(os.environ.get("HF_TOKEN", "")), "letters:", os.environ.get("HF_TOKEN"), flush=True)
for step in range(1, 5000):
    print(f"step {step} loss {3 / step:.4f}", flush=True)
    time.sleep(0.2)
"""
MOST_PAGES, QUERIES = 150, 2
LINE = re.compile(r"step [2-9]\d* loss")


@pytest.mark.walk(0)
def test_a_new_admin(chromium, how):
    with Fleet(1) as fleet, Product() as yard:
        walk = Walk(chromium, yard, how, "a_new_admin")
        sets_up(walk)
        adds_a_host(walk, fleet[0])
        adds_a_project_and_a_person(walk)
        runs_the_first_job(walk)
        walk.wrong += dead_ends(walk)
        walk.end()
    walk.judged()


def sets_up(walk):
    link = re.compile(r"Set up your account: (http://\S+)")
    page = walk.page
    page.goto(wait_for(lambda: link.search(walk.yard.tail(10**6)), "the setup link", dump=walk.yard.tail)[1])
    walk.look("setup")
    page.locator("[name=username]").fill("ada")
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("[name=again]").fill(PASSWORD)
    page.locator("main .button.main").click()
    expect(page.locator("ol.steps li.next")).to_be_visible()
    walk.look("first five minutes")


def adds_a_host(walk, machine):
    page = walk.page
    page.locator("a.main[href='/hosts/add']").click()
    walk.look("add hosts")
    machine.authorize(re.search(r"ssh-ed25519 [^']+", page.locator(".copy code").first.inner_text())[0])
    typed = {"name": "gpu-01", "address": machine.address, "user": machine.user, "port": str(machine.port)}
    for name, value in typed.items():
        page.locator(f"form[action='/hosts/add'] [name={name}]").fill(value)
    page.locator("form[action='/hosts/add'] .main").click()
    # Without a reload, the fingerprint and then the checklist appear by themselves.
    expect(page.locator("#offered-fingerprint")).to_have_text(fingerprint(machine.host_key_line))
    walk.look("host key")
    page.locator("button[name=fingerprint]").click()
    expect(page.locator("#host-live [data-state=up]")).to_be_visible()
    walk.look("host up")


def adds_a_project_and_a_person(walk):
    page = walk.page
    walk.open("/projects/", "projects")
    page.locator("a[href='/projects/new']").first.click()
    page.locator("main [name=name]").fill("nlp")
    page.locator("main [name=title]").fill("Language models")
    walk.look("new project")
    page.locator("main form .main").click()
    page.wait_for_url("**/projects/nlp/")
    walk.look("project")
    walk.open("/admin/people/", "people")
    page.locator("form[action='/admin/people/add'] [name=username]").fill("bob")
    if page.locator("[name=confirm_password]").count():
        page.locator("[name=confirm_password]").fill(PASSWORD)
    page.locator("form[action='/admin/people/add'] .main").click()
    link = page.locator(".tone-good .copy code")
    expect(link).to_contain_text("/invited/")
    walk.look("person added")
    sets_a_password(walk, link.inner_text().strip())
    page.goto(f"{walk.yard.url}/projects/nlp/")
    form = page.locator("form[aria-labelledby=add-member]")
    form.locator("[name=user]").fill("bob")
    form.locator("[name=role]").select_option("submitter")
    form.locator("button").click()
    expect(page.locator("[id^=member-]").filter(has_text="bob")).to_be_visible()
    walk.look("member added")


def sets_a_password(walk, link):
    page = walk.new_browser()
    page.goto(link)
    walk.look("invited", page)
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("[name=again]").fill(PASSWORD)
    page.locator("main .button.main").click()
    page.wait_for_url(lambda address: "/invited/" not in address)
    walk.look("the first page of a person", page)
    page.close()


def runs_the_first_job(walk):
    page = walk.page
    page.goto(walk.yard.url)
    walk.look("home with a host")
    page.locator("form[action='/jobs/sample'] button").click()
    walk.state("RUNNING")
    expect(page.locator("#job-logs .log-body")).to_contain_text(re.compile(r"step 2 of 10|step 2"))
    walk.look("first job runs")
    walk.state("SUCCEEDED")
    walk.look("first job ended")
    for path in ("/", "/jobs/", "/hosts/", "/hosts/gpus", "/usage/", "/audit/", "/help/"):
        walk.open(path, f"at the end {path.strip('/').replace('/', ' ') or 'home'}")


def dead_ends(walk):
    """Addresses that a page leads to, and that answer with an error. Of each page some of its queries are opened."""
    seen, queries, dead = set(), Counter(), []
    todo = deque([(walk.yard.url + "/", "nowhere")])
    while todo and len(seen) < MOST_PAGES:
        address, source = todo.popleft()
        path = urlsplit(address).path
        if address in seen or queries[path] >= QUERIES or not address.startswith(walk.yard.url):
            continue
        seen.add(address)
        queries[path] += 1
        answer = walk.page.context.request.get(address)
        if not answer.ok:
            dead.append(f"{source} leads to {address}: {answer.status}")
        elif "text/html" in answer.headers["content-type"]:
            found = re.findall(r'<a\s[^>]*?href="([^"]+)"', answer.text())
            todo += [(urldefrag(urljoin(address, unescape(each)))[0], path) for each in found]
    assert len(seen) > 40, "the search finds no pages"
    return dead


@pytest.mark.walk(1)
def test_a_researcher(walk, yard, hanging_job):
    hanging_job.start()
    page = walk.begin("bob")
    stores_a_secret(walk)
    first = submits_by_a_template(walk)
    reads_the_log(walk)
    types_into_a_shell(walk, first)
    page.goto(f"{yard.url}/jobs/{first}/")
    page.locator(f"button[formaction='/jobs/{first}/rerun']").click()
    page.wait_for_url(lambda address: re.search(r"/jobs/\d+/$", address) and str(first) not in address)
    second = walk.job_of_page()
    walk.state("RUNNING")
    third = clones_and_edits(walk, second)
    for tab in ("metrics", "shells/", "spec", "events"):
        if tab == "metrics":
            page.goto(f"{yard.url}/jobs/{first}/metrics")
            expect(page.locator("#job-charts .chart").first).to_be_visible()
        walk.open(f"/jobs/{first}/{tab}", f"tab {tab.strip('/')}")
    compares(walk, first, third)
    for job in (first, second, third):
        yard.client.cancel(job)
        yard.client.wait(job, "CANCELLED")
    yard.accepted += [first, second, third]
    page.goto(f"{yard.url}/jobs/{third}/")
    walk.state("CANCELLED")
    walk.look("a cancelled job")


def stores_a_secret(walk):
    page = walk.page
    walk.open("/account/secrets", "secrets")
    page.locator("main [name=name]").last.fill("HF_TOKEN")
    page.locator("main [name=value]").fill(SECRET)
    page.locator("form:has([name=value]) .actions button").click()
    expect(page.locator("main th code", has_text="HF_TOKEN")).to_be_visible()
    assert SECRET not in page.content()
    walk.look("secret set")


def submits_by_a_template(walk):
    """Fill in the form, keep it as a template, and submit what the template fills in."""
    page = walk.page
    walk.open("/jobs/new", "new job")
    page.locator("#id_display_name").fill("finetune")
    page.locator("#id_pool0-program").fill(f"exec python3 -u - <<'EOF'\n{TRAINS}EOF\n")
    row = page.locator("#pool0 .env-row").first
    row.locator("[name$=-name]").fill("HF_TOKEN")
    row.locator("[name$=-kind]").select_option("stored")
    row.locator("[name$=-stored]").fill("HF_TOKEN")
    page.locator("#id_pool0-machine_type").fill("tiny")
    page.locator("#id_web_access").check()
    expect(page.locator("#summary-body")).to_contain_text("finetune")
    walk.look("new job filled")
    page.locator("details:has(#template-name) summary").click()
    page.locator("#template-name").fill(f"Finetuning {walk.how.name}")
    page.locator("button[name=action][value=template]").click()
    walk.page.wait_for_load_state()
    walk.open("/jobs/templates/", "templates")
    page.locator("tr", has_text=f"Finetuning {walk.how.name}").locator(
        "a[href^='/jobs/new?template=']"
    ).click()
    expect(page.locator("#id_display_name")).to_have_value("finetune")
    walk.look("new job of a template")
    page.locator(".sticky button[value=submit]").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    walk.state("RUNNING")
    return walk.job_of_page()


def reads_the_log(walk):
    page = walk.page
    log = page.locator("#job-logs .log-body")
    expect(log).to_contain_text(LINE)
    expect(log).to_contain_text(f"letters: {'*' * len(SECRET)}")
    walk.look("a running job")
    page.locator("#job-logs [data-part=search]").fill("step 3 ")
    expect(page.locator("#job-logs [data-part=count]")).not_to_be_empty()
    expect(log.locator("mark").first).to_be_visible()
    page.locator("#job-logs [data-part=whole]").click()
    walk.look("a search in the log")


def types_into_a_shell(walk, job):
    page = walk.page
    with page.expect_popup() as opened:
        page.locator(f"a[href^='/jobs/{job}/shell/']").first.click()
    shell = opened.value
    screen = shell.locator(".xterm-rows").first
    shell.locator(".xterm-helper-textarea").first.wait_for(state="attached")
    expect(screen).to_contain_text(re.compile(r"[$#]"))
    shell.keyboard.type("echo shell-$((6 * 7))\n")
    expect(screen).to_contain_text("shell-42")
    walk.look("a shell", shell)
    shell.close()


def clones_and_edits(walk, job):
    page = walk.page
    page.locator(f"a[href='/jobs/{job}/clone']").click()
    expect(page.locator("#id_display_name")).to_have_value(re.compile("finetune"))
    page.locator("#id_display_name").fill("finetune-slower")
    program = page.locator("#id_pool0-program")
    program.fill(program.input_value().replace("0.2", "0.4"))
    walk.look("a clone that is edited")
    page.locator(".sticky button[value=submit]").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))
    walk.state("RUNNING")
    clone = walk.job_of_page()
    walk.open(f"/jobs/{clone}/diff", "the difference")
    expect(page.locator(".diff ins", has_text="0.4").first).to_be_visible()
    return clone


def compares(walk, *jobs):
    page = walk.page
    walk.open("/jobs/?text=finetune", "my jobs")
    for job in jobs:
        page.locator(f"#tick-{job}").check()
    page.locator("#bulk button[value=compare]").click()
    page.wait_for_url("**/jobs/compare?*")
    expect(page.locator("table.compare .differs").first).to_be_visible()
    walk.look("jobs compared")


@pytest.mark.walk(7)
def test_a_viewer_on_a_phone(walk, yard, hanging_job):
    hanging_job.start()
    job = yard.submit(job_spec(["python3", "-u", "-c", TRAINS], name="pretrain-7b", web_access=True))
    yard.client.wait(job, "RUNNING")
    waits = yard.submit(job_spec({"command": ["true"], "gpus": 8}, name="evaluate-7b"))
    page = walk.begin("vera")
    walk.open("/jobs/", "jobs")
    assert page.locator("a[href='/jobs/new']:visible").count() == 0, "a viewer may not submit"
    acts = page.locator("#bulk button[name=act]").evaluate_all("(all) => all.map((one) => one.value)")
    assert acts == ["compare"], "a viewer changes no job"
    page.locator("#text").fill("7b")
    page.locator("#filter").click()
    page.wait_for_url("**/jobs/?*text=7b*")
    walk.look("jobs found")
    page.locator(f"#job-{job} a.name").click()
    walk.state("RUNNING")
    expect(page.locator("#job-logs .log-body")).to_contain_text(LINE)
    walk.look("a running job")
    for act in ("cancel", "rerun", "delete"):
        assert page.locator(f"[formaction$='/{act}']").count() == 0, f"a viewer may not {act}"
    assert page.locator("a[href*='/shell']").count() == 0, "a viewer opens no shells"
    walk.open(f"/jobs/{waits}/", "a job that waits")
    expect(page.locator("#job-state .tone-wait p").first).not_to_be_empty()
    paths = [f"/jobs/{job}/{tab}" for tab in ("log/workerpool0-0", "metrics", "spec", "events")]
    others = ["/jobs/queue", "/hosts/gpus", "/hosts/occupancy", "/hosts/", "/projects/default/", "/usage/"]
    for path in (*paths, *others, "/account", "/account/preferences", "/search?q=7b"):
        walk.open(path, path.replace("/", " ").replace(str(job), "").replace("?", " ").strip())
    for each in (waits, job):
        yard.client.cancel(each)
        yard.client.wait(each, "CANCELLED")


@pytest.mark.walk(6)
def test_an_operator_at_three_in_the_morning(walk, yard, hanging_job):
    job = hanging_job.start()
    page = walk.begin("ada")
    walk.open("/jobs/", "jobs at night")
    page.locator(f"#job-{job} a.name").click()
    walk.state("RUNNING")
    run = finds_the_quiet_rank(walk, job, hanging_job)
    sees_that_its_gpu_is_idle(walk, job)
    sees_where_it_stands(walk, job, run)
    page.goto(f"{yard.url}/jobs/{job}/")
    page.locator("button.danger[popovertarget=ask-cancel]").click()
    walk.look("asked before the cancel")
    page.locator(f"[formaction='/jobs/{job}/cancel']").click()
    walk.state("CANCELLED")
    walk.look("cancelled")
    puts_out_of_use(walk, run["host_id"])
    hanging_job.over()


def finds_the_quiet_rank(walk, job, hanging_job):
    page = walk.page
    quiet = page.locator("#cells-odd a").first
    # A replica counts as quiet after a minute.
    expect(quiet).to_be_visible(timeout=150_000)
    walk.look("a job that hangs")
    run = hanging_job.run()
    assert quiet.inner_text() == "workerpool1-12", "rank 13 is the thirteenth of the second pool"
    quiet.click()
    expect(page.locator("#job-log-head")).to_contain_text("workerpool1-12")
    expect(page.locator("#job-logs .log-body")).to_contain_text("rank 13: step 7")
    walk.look("the rank that is quiet")
    return run


def sees_that_its_gpu_is_idle(walk, job):
    page = walk.page
    page.goto(f"{walk.yard.url}/jobs/{job}/?view=table&sort=idle")
    first = page.locator("#job-replicas tbody tr").first
    expect(first).to_contain_text("workerpool1-12")
    walk.look("the least load first")


def sees_where_it_stands(walk, job, run):
    shell = ShellTab(walk.page.context, f"{walk.yard.url}/jobs/{job}/shell/{run['id']}")
    shell.expect(re.compile(r"[$#]"))
    shell.page.keyboard.type("clear; py-spy dump --pid $TRAINYARD_PID\n")
    shell.expect("reads_a_shard")
    walk.look("its stack", shell.page)
    shell.page.close()


def puts_out_of_use(walk, host):
    page = walk.page
    walk.open(f"/hosts/{host}/maintenance", "maintenance")
    form = page.locator(f"form[action='/hosts/{host}/cordon']")
    form.locator("input, textarea").last.fill("hangs at night")
    form.locator(".main").click()
    page.wait_for_load_state()
    walk.open(f"/hosts/{host}/", "a host out of use")
    expect(page.locator("#host-live .tone-warn", has_text="hangs at night")).to_be_visible()
    page.goto(f"{walk.yard.url}/hosts/{host}/maintenance")
    page.locator(f"form[action='/hosts/{host}/uncordon'] button").click()
    expect(page.locator(f"form[action='/hosts/{host}/uncordon']")).to_have_count(0)
