"""The whole new-job form, as fields or as JSON: the job and its four pools, to and from the CustomJob document.

Only spec.parse decides what a job may be. The form writes the document, and shows every violation at the field that it
is about. The parts of a document that the form does not show are carried along unchanged in the hidden field `base`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms import code_fields, job_fields, pool_fields
from console.forms.code_fields import CodeFields
from console.forms.fields import PlainText, area_of_text
from console.forms.job_fields import NEW_BYTES, SAME_BYTES, JobFields, bytes_of_a_clone
from console.forms.pool_fields import PoolFields
from console.forms.violations import (
    CODE,
    CODE_FIELDS,
    IN_POOL,
    JOB_FIELDS,
    field_message,
    field_of,
    form_message,
    pool_field_of,
)
from jobs.rules.spec.parse import Violation
from jobs.rules.spec.secret_variables import without_values

POOLS = 4


@dataclass(frozen=True, slots=True)
class JobDestination:
    """What the document does not say: project, location, the request id that makes a second send harmless, the id of
    the job that this is a copy of, and whether it brings the same bytes as that job."""

    project: str
    location: str
    request_id: str
    cloned_from: str = ""
    brings: str = SAME_BYTES

    @classmethod
    def cleaned(cls, typed: Mapping[str, Any]) -> JobDestination:
        where = typed["project"], typed["location"], typed["request_id"]
        return cls(*where, typed["cloned_from"], typed["brings"] or SAME_BYTES)

    @property
    def same_bytes(self) -> bool:
        return self.brings != NEW_BYTES


class Draft:
    """The form as fields, made from a document or from what the browser sent. Typed text is never lost."""

    mode = "form"

    def __init__(
        self,
        job: JobFields,
        code: CodeFields,
        pools: list[PoolFields],
        made_from: Mapping[str, Any] | None = None,
    ) -> None:
        self.job = job
        self.code = code
        self.pools = pools
        self._made_from = made_from or {}
        for number, pool in enumerate(pools):
            pool.number = number
            if pool.may_be_reducers:
                pool.offer_reducers()
        pools[0].fields["replica_count"].help_text = _("The primary pool always has one replica.")

    @classmethod
    def from_post(cls, data: QueryDict) -> Self:
        data, prefixes = data.copy(), [f"pool{number}" for number in range(POOLS)]
        for prefix in prefixes:
            pool_fields.answered(data, prefix)
        pools = [PoolFields(data, prefix=prefix) for prefix in prefixes]
        return cls(JobFields(data), CodeFields(data, prefix="code"), pools)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], chosen: JobDestination) -> Self:
        """Return a form that shows a document that spec.parse has read and written."""
        pools = list(document.get("jobSpec", {}).get("workerPoolSpecs", []))
        pools += [{}] * (POOLS - len(pools))
        job = JobFields(initial={**job_fields.initial(document), **asdict(chosen)})
        initial = [pool_fields.initial(pool, pools[0]) for pool in pools]
        pools_shown = [PoolFields(prefix=f"pool{n}", initial=values) for n, values in enumerate(initial)]
        code = CodeFields(prefix="code", initial=code_fields.initial(pools))
        return cls(job, code, pools_shown, document)

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
        valid = [form.is_valid() for form in self._used]
        return all(valid)

    def document(self) -> dict[str, Any]:
        """Return the document that the form describes. A field with an error counts as empty."""
        first, code = self.pools[0], self.code.document()
        used = [pool.document(first, code) if pool.used else {} for pool in self.pools]
        while used and not used[-1]:
            used.pop()
        return self.job.document(used)

    def shown_document(self) -> dict[str, Any]:
        """The document of what the page shows: of a form that was sent, or the one that this form was made from."""
        return self.document() if self.job.is_bound else dict(self._made_from)

    def add_violations(self, violations: Iterable[Violation]) -> None:
        """Add the violations of the document to the fields. A field that already has an error gets no second one."""
        wrong = {
            (id(form), name)
            for form in (self.job, self.code, *self.pools)
            if form.is_bound
            for name in form.errors
        }
        for violation in violations:
            form, field = self._place(violation.field)
            message = form_message(violation) if field is None else field_message(form[field], violation)
            # Pools with the program of the first one have its violations too, and all pools have those of the code.
            if (id(form), field) not in wrong and message not in form.errors.get(
                field or NON_FIELD_ERRORS, ()
            ):
                form.add_error(field, message)

    @property
    def fields_with_errors(self) -> list[forms.BoundField]:
        """The fields that have an error, in the order of the form."""
        return [form[name] for form in self._used for name in form.fields if name in form.errors]

    @property
    def _used(self) -> list[forms.Form]:
        return [self.job, self.code, *(pool for pool in self.pools if pool.used)]

    def _place(self, path: str) -> tuple[forms.Form, str | None]:
        in_pool = IN_POOL.match(path)
        if in_pool and int(in_pool[1]) < POOLS:
            pool, inside = self.pools[int(in_pool[1])], in_pool[2]
            if inside.startswith(CODE):
                return self.code, field_of(inside, CODE_FIELDS)
            if pool.like_primary and inside.startswith(
                ("container_spec", "python_package_spec", "trainyard")
            ):
                pool = self.pools[0]
            kind = str(pool["kind"].value())
            return (pool, pool_field_of(inside, kind)) if pool.used else (self.job, None)
        return self.job, field_of(path, JOB_FIELDS)


class JsonDraft(forms.Form):
    """The form as JSON: one field that holds the whole document."""

    mode = "json"
    project = forms.ChoiceField(label=gettext_lazy("Project"))
    location = forms.ChoiceField(label=gettext_lazy("Location"))
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)
    cloned_from = forms.CharField(required=False, widget=forms.HiddenInput, max_length=19)
    brings = bytes_of_a_clone()
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
    """The form with fields where it can show all that the pools bring, or else the document itself."""
    pools = document.get("jobSpec", {}).get("workerPoolSpecs", [])
    kind = Draft if code_fields.can_show(pools) else JsonDraft
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
