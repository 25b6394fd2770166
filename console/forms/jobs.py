"""The whole new-job form, as fields or as JSON: the job and its four pools, to and from the CustomJob document.

Only spec.parse decides what a job may be. The form writes the document, and shows every violation at the field that it
is about. The parts of a document that the form does not show are carried along unchanged in the hidden field `base`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms import job_fields, pool_fields
from console.forms.fields import PlainText, area_of_text
from console.forms.job_fields import JobFields
from console.forms.pool_fields import PoolFields
from console.forms.violations import IN_POOL, JOB_FIELDS, POOL_FIELDS, field_message, field_of, form_message
from jobs.rules.spec.parse import Violation
from jobs.rules.spec.secret_variables import without_values

POOLS = 4


@dataclass(frozen=True, slots=True)
class JobDestination:
    """What the document does not say: project, location, the request id that makes a second send harmless, and the id
    of the job that this is a copy of."""

    project: str
    location: str
    request_id: str
    cloned_from: str = ""

    @classmethod
    def cleaned(cls, typed: Mapping[str, Any]) -> JobDestination:
        return cls(typed["project"], typed["location"], typed["request_id"], typed["cloned_from"])


class Draft:
    """The form as fields, made from a document or from what the browser sent. Typed text is never lost."""

    mode = "form"

    def __init__(
        self, job: JobFields, pools: list[PoolFields], made_from: Mapping[str, Any] | None = None
    ) -> None:
        self.job = job
        self.pools = pools
        self._made_from = made_from or {}
        for number, pool in enumerate(pools):
            pool.number = number
        pools[0].fields["replica_count"].help_text = _("The primary pool always has one replica.")

    @classmethod
    def from_post(cls, data: QueryDict) -> Draft:
        data, prefixes = data.copy(), [f"pool{number}" for number in range(POOLS)]
        for prefix in prefixes:
            pool_fields.answered(data, prefix)
        return cls(JobFields(data), [PoolFields(data, prefix=prefix) for prefix in prefixes])

    @classmethod
    def from_document(cls, document: Mapping[str, Any], chosen: JobDestination) -> Draft:
        """Return a form that shows a document that spec.parse has read and written."""
        pools = list(document.get("jobSpec", {}).get("workerPoolSpecs", []))
        pools += [{}] * (POOLS - len(pools))
        job = JobFields(initial={**job_fields.initial(document), **asdict(chosen)})
        primary = pools[0].get("containerSpec", {})
        initial = [pool_fields.initial(pool, primary) for pool in pools]
        pools_shown = [PoolFields(prefix=f"pool{n}", initial=values) for n, values in enumerate(initial)]
        return cls(job, pools_shown, document)

    @property
    def destination(self) -> JobDestination:
        return JobDestination.cleaned(self.job.cleaned_data)

    @property
    def location(self) -> str:
        """The location that was sent, or an empty text if it cannot be read."""
        return str(self.job.cleaned_data.get("location", ""))

    def set_choices(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        set_choices(self.job, projects, locations)

    def hide_secrets(self) -> None:
        """The rows of variables never show a secret value (env_rows.py)."""

    def is_valid(self) -> bool:
        """Check the job and every pool in use. None is skipped, so that the page shows all errors at once."""
        return all([self.job.is_valid(), *[pool.is_valid() for pool in self.pools if pool.used]])

    def document(self) -> dict[str, Any]:
        """Return the document that the form describes. A field with an error counts as empty."""
        first = self.pools[0].document()
        others = self.pools[1:]
        used = [first, *(pool.document(first["containerSpec"]) if pool.used else {} for pool in others)]
        while used and not used[-1]:
            used.pop()
        return self.job.document(used)

    def shown_document(self) -> dict[str, Any]:
        """The document of what the page shows: of a form that was sent, or the one that this form was made from."""
        return self.document() if self.job.is_bound else dict(self._made_from)

    def add_violations(self, violations: Iterable[Violation]) -> None:
        """Add the violations of the document to the fields. A field that already has an error gets no second one."""
        wrong = {
            (id(form), name) for form in (self.job, *self.pools) if form.is_bound for name in form.errors
        }
        for violation in violations:
            form, field = self._place(violation.field)
            message = form_message(violation) if field is None else field_message(form[field], violation)
            # Pools with the program of the first one have its violations too.
            if (id(form), field) not in wrong and message not in form.errors.get(
                field or NON_FIELD_ERRORS, ()
            ):
                form.add_error(field, message)

    @property
    def fields_with_errors(self) -> list[forms.BoundField]:
        """The fields that have an error, in the order of the form."""
        used = [pool for pool in self.pools if pool.used]
        return [form[name] for form in (self.job, *used) for name in form.fields if name in form.errors]

    def _place(self, path: str) -> tuple[forms.Form, str | None]:
        in_pool = IN_POOL.match(path)
        if in_pool and int(in_pool[1]) < POOLS:
            pool = self.pools[int(in_pool[1])]
            if pool.like_primary and in_pool[2].startswith("container_spec"):
                pool = self.pools[0]
            return (pool, field_of(in_pool[2], POOL_FIELDS)) if pool.used else (self.job, None)
        return self.job, field_of(path, JOB_FIELDS)


class JsonDraft(forms.Form):
    """The form as JSON: one field that holds the whole document."""

    mode = "json"
    project = forms.ChoiceField(label=gettext_lazy("Project"))
    location = forms.ChoiceField(label=gettext_lazy("Location"))
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)
    cloned_from = forms.CharField(required=False, widget=forms.HiddenInput, max_length=19)
    text = PlainText(label=gettext_lazy("CustomJob"), widget=area_of_text("program", rows=24))
    violations: Sequence[Violation] = ()
    _made_from: Mapping[str, Any] = {}

    @classmethod
    def from_post(cls, data: QueryDict) -> JsonDraft:
        return cls(data)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], chosen: JobDestination) -> JsonDraft:
        draft = cls(initial={"text": _as_text(document), **asdict(chosen)})
        draft._made_from = document
        return draft

    @property
    def destination(self) -> JobDestination:
        return JobDestination.cleaned(self.cleaned_data)

    @property
    def job(self) -> JsonDraft:
        """The form that holds the destination. Draft has the same attribute."""
        return self

    def set_choices(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        set_choices(self, projects, locations)

    def clean_text(self) -> dict[str, Any]:
        try:
            document = json.loads(self.cleaned_data["text"])
        except RecursionError:
            raise forms.ValidationError(_("The text is nested too deeply.")) from None
        except ValueError as error:
            raise forms.ValidationError(_("The text is not JSON: {error}.").format(error=error)) from None
        if not isinstance(document, dict):
            raise forms.ValidationError(_("A CustomJob is a JSON object: { … }."))
        return document

    def document(self) -> dict[str, Any]:
        return dict(self.cleaned_data["text"])

    def shown_document(self) -> dict[str, Any]:
        """The document of the text; an empty one while the text cannot be read."""
        if not self.is_bound:
            return dict(self._made_from)
        text = self.cleaned_data.get("text")
        return dict(text) if isinstance(text, dict) else {}

    def hide_secrets(self) -> None:
        """Take the values of secrets out of the text before a page shows it."""
        document = self.shown_document() if self.is_bound else None
        if document and without_values(document) != document:
            data = QueryDict(mutable=True)
            data.update({**{name: self.data[name] for name in self.data}, "text": _as_text(document)})
            self.data = data

    def add_violations(self, violations: Iterable[Violation]) -> None:
        """Keep the violations beside the form. A form that was never sent cannot hold errors of Django."""
        self.violations = list(violations)


def _as_text(document: Mapping[str, Any]) -> str:
    return json.dumps(without_values(document), indent=2, ensure_ascii=False)


AnyDraft = Draft | JsonDraft


def draft_of(document: Mapping[str, Any], chosen: JobDestination) -> AnyDraft:
    """The form with fields where it can show each pool of the document, or else the document itself."""
    pools = document.get("jobSpec", {}).get("workerPoolSpecs", [])
    kind = Draft if all(pool_fields.can_show(pool) for pool in pools) else JsonDraft
    return kind.from_document(document, chosen)


def set_choices(form: forms.Form, projects: Iterable[str], locations: Iterable[str]) -> None:
    """Set the projects and locations that can be chosen. The first of each is the default."""
    for name, names in (("project", list(projects)), ("location", list(locations))):
        field = form.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(word, word) for word in names]
        # A select shows its first choice by itself. A hidden input does not.
        if names and form.initial.get(name) not in names:
            form.initial[name] = names[0]
