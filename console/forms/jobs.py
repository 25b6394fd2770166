"""The new-job form as a whole, as fields or as JSON: the job and its four pools, to and from the CustomJob document.

What a job may be is decided by parse alone. The form only writes the document, and puts every violation back
to the field it is about. Parts of a document that the form does not show are carried along untouched in `base`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from console.forms import complaints, job_fields, pool_fields
from console.forms.fields import PlainText, area_of_text
from console.forms.job_fields import JobFields
from console.forms.pool_fields import PoolFields
from jobs.rules.spec.parse import Violation

POOLS = 4


@dataclass(frozen=True, slots=True)
class JobDestination:
    """What is said beside the document: whose job it is, where it runs, and the name under which it is sent once."""

    project: str
    location: str
    request_id: str

    @classmethod
    def cleaned(cls, typed: Mapping[str, Any]) -> JobDestination:
        return cls(typed["project"], typed["location"], typed["request_id"])


class Draft:
    """The whole form, fresh from a document or as it was sent. Nothing that was typed is ever lost."""

    mode = "form"

    def __init__(self, job: JobFields, pools: list[PoolFields]) -> None:
        self.job = job
        self.pools = pools
        for number, pool in enumerate(pools):
            pool.number = number
        pools[0].fields["replica_count"].help_text = "The primary is always one."

    @classmethod
    def sent(cls, data: QueryDict) -> Draft:
        return cls(JobFields(data), [PoolFields(data, prefix=f"pool{number}") for number in range(POOLS)])

    @classmethod
    def of(cls, document: Mapping[str, Any], chosen: JobDestination) -> Draft:
        """A document that spec.parse has read and written, shown as a form."""
        pools = list(document.get("jobSpec", {}).get("workerPoolSpecs", []))
        pools += [{}] * (POOLS - len(pools))
        job = JobFields(initial={**job_fields.initial(document), **asdict(chosen)})
        initial = [pool_fields.initial(pool) for pool in pools]
        return cls(job, [PoolFields(prefix=f"pool{n}", initial=values) for n, values in enumerate(initial)])

    @property
    def chosen(self) -> JobDestination:
        return JobDestination.cleaned(self.job.cleaned_data)

    @property
    def location(self) -> str:
        """Where it is to run, if that can be read."""
        return str(self.job.cleaned_data.get("location", ""))

    def offer(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        offer(self.job, projects, locations)

    def is_valid(self) -> bool:
        """Only the pools in use are looked at; all of them are, so that every complaint is told at once."""
        return all([self.job.is_valid(), *[pool.is_valid() for pool in self.pools if pool.used]])

    def document(self) -> dict[str, Any]:
        """What is typed; where that is wrong, as if nothing were."""
        used = [pool.document() if pool.used else {} for pool in self.pools]
        while used and not used[-1]:
            used.pop()
        return self.job.document(used)

    def complain(self, violations: Iterable[Violation]) -> None:
        """Beside what the form has found out by itself: of a field that is wrong already nothing more is told."""
        wrong = {
            (id(form), name) for form in (self.job, *self.pools) if form.is_bound for name in form.errors
        }
        for violation in violations:
            form, field = self._place(violation.field)
            if field is None:
                form.add_error(None, complaints.sentence(violation))
            elif (id(form), field) not in wrong:
                form.add_error(field, complaints.words(form[field], violation))

    @property
    def wrong(self) -> list[forms.BoundField]:
        """The fields that are complained about, in the form's order."""
        used = [pool for pool in self.pools if pool.used]
        return [form[name] for form in (self.job, *used) for name in form.fields if name in form.errors]

    def _place(self, path: str) -> tuple[forms.Form, str | None]:
        in_pool = complaints.IN_POOL.match(path)
        if in_pool and int(in_pool[1]) < POOLS:
            pool = self.pools[int(in_pool[1])]
            return (
                (pool, complaints.field_of(in_pool[2], complaints.POOL_FIELDS))
                if pool.used
                else (self.job, None)
            )
        return self.job, complaints.field_of(path, complaints.JOB_FIELDS)


class JsonDraft(forms.Form):
    """The document itself, for those who have one."""

    mode = "json"
    project = forms.ChoiceField(label="Project")
    location = forms.ChoiceField(label="Location")
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)
    text = PlainText(label="CustomJob", widget=area_of_text("program", rows=24))
    violations: Sequence[Violation] = ()

    @classmethod
    def sent(cls, data: QueryDict) -> JsonDraft:
        return cls(data)

    @classmethod
    def of(cls, document: Mapping[str, Any], chosen: JobDestination) -> JsonDraft:
        return cls(initial={"text": json.dumps(document, indent=2, ensure_ascii=False), **asdict(chosen)})

    @property
    def chosen(self) -> JobDestination:
        return JobDestination.cleaned(self.cleaned_data)

    @property
    def job(self) -> JsonDraft:
        """The form that holds what is said beside the document, as Draft has one."""
        return self

    def offer(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        offer(self, projects, locations)

    def clean_text(self) -> dict[str, Any]:
        try:
            document = json.loads(self.cleaned_data["text"])
        except RecursionError:
            raise forms.ValidationError("This is nested too deeply.") from None
        except ValueError as error:
            raise forms.ValidationError(f"This is not JSON: {error}.") from None
        if not isinstance(document, dict):
            raise forms.ValidationError("A CustomJob is a JSON object: { … }.")
        return document

    def document(self) -> dict[str, Any]:
        return dict(self.cleaned_data["text"])

    def complain(self, violations: Iterable[Violation]) -> None:
        """A form that was never sent has no errors of Django's; those of a fresh document are kept beside it."""
        self.violations = list(violations)


AnyDraft = Draft | JsonDraft


def offer(form: forms.Form, projects: Iterable[str], locations: Iterable[str]) -> None:
    """What may be chosen; the first of each is chosen already."""
    for name, names in (("project", list(projects)), ("location", list(locations))):
        field = form.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(word, word) for word in names]
        # A select shows its first choice by itself; a hidden input does not.
        if names and form.initial.get(name) not in names:
            form.initial[name] = names[0]
