"""`tune`, `studies`, `study`, `extend-study`, `cancel-study` and `delete-study`: searches for the best parameters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import NOT_UNDERSTOOD, REFUSED, ClientError, Refusal
from ..session import LAST, Session
from ..tables import print_json, print_pairs, print_table
from ..text import harmless
from ..times import ago, between, local
from . import submit

Document = Mapping[str, Any]
_OF_STUDY = ("name", "displayName", "state", "createTime", "startTime", "endTime", "error", "labels")
_OF_TRIAL = (
    "id",
    "state",
    "parameters",
    "customJob",
    "finalMeasurement",
    "startTime",
    "endTime",
    "infeasibleReason",
    "trainyard",
)
# Of which numbers of further trials people are told, unless they ask.
SHOWN = (5, 10, 20)
# All but what trials measured at each step, which may be much.
SHORT = ",".join(
    [*_OF_STUDY, "maxTrialCount", "studySpec.metrics", *(f"trials.{name}" for name in _OF_TRIAL)]
)


def tune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        help="a HyperparameterTuningJob, or what gcloud takes as --config, as JSON (or YAML); - for stdin",
    )
    parser.add_argument("--name", "--display-name", dest="name", default="", help="how the study is called")
    parser.add_argument(
        "--label", "--labels", action="append", default=[], metavar="KEY=VALUE", help="repeat it"
    )
    parser.add_argument("--max-trial-count", type=int, default=0, metavar="N", help="how many trials")
    parser.add_argument("--parallel-trial-count", type=int, default=0, metavar="N", help="how many at once")
    parser.add_argument(
        "--prior",
        action="append",
        default=[],
        metavar="STUDY",
        help="an earlier study to learn from; repeat it",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the document")
    parser.add_argument("--price", action="store_true", help="only say what it would cost")
    parser.add_argument("--json", action="store_true", help="for programs")


def tune(session: Session) -> int:
    args = session.args
    document = submit.read_document(args.file)
    if "studySpec" not in document and "study_spec" not in document:
        raise ClientError(
            f"{args.file} has no studySpec.", "docs/using.md tells what a study is.", NOT_UNDERSTOOD
        )
    if "displayName" not in document and "display_name" not in document:
        document["displayName"] = "study" if args.file == "-" else Path(args.file).stem
    submit.name_and_labels(args, document)
    # gcloud has them as options, and one trial where they are missing; here the service says that they are.
    for name, other, count in (
        ("maxTrialCount", "max_trial_count", args.max_trial_count),
        ("parallelTrialCount", "parallel_trial_count", args.parallel_trial_count),
    ):
        if count:
            document.pop(other, None)
            document[name] = count
    if args.prior:
        spec: dict[str, Any] = document.pop("study_spec", None) or document.get("studySpec") or {}
        document["studySpec"] = spec
        names = [session.study(each).removeprefix("/v1/").rpartition("/")[2] for each in args.prior]
        spec.pop("transfer_learning_config", None)
        spec["transferLearningConfig"] = {"priorStudyNames": names}
    if args.dry_run:
        print_json(document)
        return 0
    if args.price:
        asked = {
            "project": session.project,
            "location": session.location,
            "hyperparameterTuningJob": document,
        }
        found = session.api.post("/api/v1/studies:price", asked)
        if args.json:
            print_json(found)
        else:
            print(harmless(found["text"]))
        return 0
    made = submit.submitted(session, session.studies(session.location), document)
    if args.json:
        print_json(made)
    else:
        number = _number(made)
        print(f"Submitted study {number}. Its trials: trainyard study {number}")
    return 0


def studies_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", default="", help="RUNNING, QUEUED, SUCCEEDED, FAILED, ...")
    parser.add_argument("--limit", type=int, default=30, help="how many studies (30; 0: all)")
    parser.add_argument("--json", action="store_true", help="for programs")


def studies(session: Session) -> int:
    args = session.args
    state = args.state.upper().replace("JOB_STATE_", "")
    query: dict[str, object] = {"readMask": SHORT, "pageSize": min(args.limit or 100, 100)}
    if state:
        query["filter"] = f'state="JOB_STATE_{state}"'
    rows = list(session.pages(session.studies(), "hyperparameterTuningJobs", query, args.limit))
    if args.json:
        print_json(rows)
        return 0
    now = session.api.now
    cells = [
        (
            _number(row),
            row["displayName"],
            _state(row),
            f"{len(_over(row))}/{row['maxTrialCount']}",
            _best_words(row),
            between(row.get("startTime"), row.get("endTime"), now),
            ago(row["createTime"], now),
        )
        for row in rows
    ]
    print_table(("id", "name", "state", "trials", "best", "ran", "age"), cells, "There are no such studies.")
    return 0


def study_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "study", nargs="?", default="", help="its number; without one, the newest of the project"
    )
    parser.add_argument(
        "--more", type=int, default=0, metavar="N", help="what so many more trials would bring (5, 10 and 20)"
    )
    parser.add_argument("--json", action="store_true", help="for programs: all that REST tells")


def study(session: Session) -> int:
    found = session.api.get(_address(session), {} if session.args.json else {"readMask": SHORT})
    if session.args.json:
        print_json(found)
        return 0
    now, best = session.api.now, best_trials(found)
    cost = _cost(session, found)
    hours = {each["id"]: each["gpuHours"] for each in cost.get("trials", ()) if "gpuHours" in each}
    print_pairs(
        [
            ("study", _number(found)),
            ("name", found["displayName"]),
            ("state", _state(found)),
            ("error", found.get("error", {}).get("message", "")),
            ("created", local(found.get("createTime"))),
            ("started", local(found.get("startTime"))),
            ("ended", local(found.get("endTime"))),
            ("ran", between(found.get("startTime"), found.get("endTime"), now)),
            ("trials", f"{len(_over(found))} of {found['maxTrialCount']} are over"),
            ("best", "; ".join(_trial_words(each) for each in best)),
            ("GPU-hours", _hours(cost["gpuHours"]) if "gpuHours" in cost else ""),
            ("to come", cost["price"]["text"] if cost.get("price", {}).get("trialCount") else ""),
            ("labels", ", ".join(f"{key}={value}" for key, value in found.get("labels", {}).items())),
        ]
    )
    for each in _outlook(cost, session.args.more):
        print(harmless(each["text"]))
    print()
    heads = ("trial", "state", "job", "metrics", "ran", "GPU-h", "parameters", "note")
    rows = [_row(each, now, hours) for each in _trials(found)]
    print_table(heads, rows, "No trial has been asked for yet.")
    return 0


def _cost(session: Session, found: Document) -> Document:
    """What the study has cost and more would bring. A token of another use may not ask for it: then nothing is said."""
    try:
        return dict(session.api.get(f"/api/v1/studies/{_number(found)}"))
    except Refusal as refused:
        if refused.status not in (403, 404):
            raise
        return {}


def _outlook(cost: Document, more: int) -> list[Document]:
    """Of as many more trials as was asked for, or of a few numbers of them."""
    counts = (more,) if more else SHOWN
    found = [each for each in cost.get("outlook", ()) if each["trialCount"] in counts]
    if more and not found:
        known = sorted({each["trialCount"] for each in cost.get("outlook", ())})
        words = ", ".join(map(str, known)) if known else "nothing yet"
        raise ClientError(
            f"What {more} more trials would bring is not known.", f"Known: {words}.", NOT_UNDERSTOOD
        )
    return found


def _hours(hours: float) -> str:
    return f"{hours:.4g}"


def _address(session: Session) -> str:
    if session.args.study not in ("", LAST):
        return session.study(session.args.study)
    query = {"readMask": "name", "pageSize": 1}
    for newest in session.pages(session.studies(), "hyperparameterTuningJobs", query, 1):
        return f"/v1/{newest['name']}"
    raise ClientError(f"Project {session.project} has no study.", "trainyard tune FILE makes one.")


def _row(trial: Document, now: Any, hours: Mapping[str, float]) -> tuple[object, ...]:
    return (
        trial["id"],
        trial["state"],
        trial.get("customJob", "").rpartition("/")[2],
        _metrics(trial),
        between(trial.get("startTime"), trial.get("endTime"), now),
        _hours(hours[trial["id"]]) if trial["id"] in hours else "",
        _parameters(trial),
        trial.get("infeasibleReason", ""),
    )


def best_trials(found: Document) -> list[Document]:
    """The best trial; of several metrics those to which no other is better in one and as good in all."""
    goals = [
        (metric["metricId"], -1.0 if metric.get("goal") == "MINIMIZE" else 1.0)
        for metric in found["studySpec"]["metrics"]
        if "safetyConfig" not in metric
    ]
    scored = [(_scores(each, goals), each) for each in _trials(found) if each["state"] == "SUCCEEDED"]
    known = [(scores, each) for scores, each in scored if scores]
    if len(goals) == 1:
        return [max(known, key=lambda one: one[0])[1]] if known else []
    return [each for scores, each in known if not any(_beats(other, scores) for other, _ in known)]


def _scores(trial: Document, goals: Sequence[tuple[str, float]]) -> list[float]:
    """The final values, of which more is better. Empty where one is missing, or is no number."""
    values = {
        each["metricId"]: each["value"] for each in trial.get("finalMeasurement", {}).get("metrics", ())
    }
    scores = [float(values.get(name, "nan")) * sign for name, sign in goals]
    return scores if all(score == score for score in scores) else []


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return list(one) != list(other) and all(mine >= its for mine, its in zip(one, other))


def _best_words(found: Document) -> str:
    best = best_trials(found)
    if len(best) > 1:
        return f"{len(best)} trials"
    return f"{_metrics(best[0])} (trial {best[0]['id']})" if best else ""


def _trial_words(trial: Document) -> str:
    return f"trial {trial['id']}: {_metrics(trial)} with {_parameters(trial)}"


def _metrics(trial: Document) -> str:
    final = trial.get("finalMeasurement", {}).get("metrics", ())
    return " ".join(f"{each['metricId']}={_short(each['value'])}" for each in final)


def _parameters(trial: Document) -> str:
    return " ".join(f"{each['parameterId']}={_short(each['value'])}" for each in trial.get("parameters", ()))


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _trials(found: Document) -> list[Document]:
    return sorted(found.get("trials", ()), key=lambda trial: int(trial["id"]))


def _over(found: Document) -> list[Document]:
    """Without those that hosts failed under and that are tried again."""
    over = [each for each in _trials(found) if each["state"] in ("SUCCEEDED", "INFEASIBLE")]
    return [each for each in over if each.get("trainyard", {}).get("ending") != "HOSTS"]


def _number(found: Document) -> str:
    return str(found["name"].rpartition("/")[2])


def _state(found: Document) -> str:
    return str(found["state"].replace("JOB_STATE_", ""))


def extend_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", help="its number")
    parser.add_argument("--max-trial-count", type=int, metavar="N", help="how many trials in all")
    parser.add_argument("--parallel-trial-count", type=int, metavar="N", help="how many at once")
    parser.add_argument("--max-failed-trial-count", type=int, metavar="N", help="how many may fail")
    parser.add_argument("--json", action="store_true", help="for programs")


def extend_study(session: Session) -> int:
    args = session.args
    number = session.study(args.study).rpartition("/")[2]
    counts = {
        "maxTrialCount": args.max_trial_count,
        "parallelTrialCount": args.parallel_trial_count,
        "maxFailedTrialCount": args.max_failed_trial_count,
    }
    asked = {name: count for name, count in counts.items() if count is not None}
    if not asked:
        raise ClientError("Nothing is asked for.", "Say --max-trial-count N.", NOT_UNDERSTOOD)
    found = session.api.post(f"/api/v1/studies/{number}:extend", asked)
    if args.json:
        print_json(found)
    else:
        print(
            f"Study {number} has {found['maxTrialCount']} trials, {found['parallelTrialCount']} at once. "
            f"Its trials: trainyard study {number}"
        )
    return 0


def cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("studies", nargs="+", metavar="STUDY", help="their numbers")


def cancel_study(session: Session) -> int:
    return _to_each(session, "Cancelled", lambda address: session.api.post(f"{address}:cancel", {}))


def delete_arguments(parser: argparse.ArgumentParser) -> None:
    cancel_arguments(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def delete_study(session: Session) -> int:
    args = session.args
    if not args.yes:
        if not sys.stdin.isatty():
            raise ClientError("Deleting cannot be undone.", "Give --yes if you mean it.", NOT_UNDERSTOOD)
        named = ", ".join(args.studies)
        if input(f"Delete {named}? This cannot be undone. [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing is deleted.")
            return REFUSED
    return _to_each(session, "Deleted", lambda address: session.api.request("DELETE", address))


def _to_each(session: Session, done: str, act: Callable[[str], object]) -> int:
    refused = False
    for text, address in [(text, session.study(text)) for text in session.args.studies]:
        try:
            act(address)
        except Refusal as problem:
            if problem.status in (401, 429) or problem.status >= 500:
                raise
            refused = True
            print(f"trainyard: {harmless(text)}: {harmless(problem.message)}", file=sys.stderr)
        else:
            print(f"{done}: {harmless(text)}")
    return REFUSED if refused else 0


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "tune": tune_arguments,
    "studies": studies_arguments,
    "study": study_arguments,
    "extend-study": extend_arguments,
    "cancel-study": cancel_arguments,
    "delete-study": delete_arguments,
}
