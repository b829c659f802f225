"""The stand-in for Helm's templates does what Go does, and refuses what it does not know."""

import pytest

from tests.deploy.gotemplate import Renderer, TemplateError

ROOT = {"Values": {"a": 1, "name": "x-", "list": ["p", "q"], "map": {"k": "v"}, "no": "", "zero": 0}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a {{ .Values.a }} b", "a 1 b"),
        ("a  \n {{- .Values.a -}}  \n b", "a1b"),
        ("{{ if .Values.no }}yes{{ else if .Values.zero }}zero{{ else }}no{{ end }}", "no"),
        ("{{ if not .Values.no }}yes{{ end }}", "yes"),
        ("{{ with .Values.map }}{{ .k }}{{ .missing }}{{ $.Values.a }}{{ end }}", "v1"),
        ("{{ with .Values.no }}never{{ else }}{{ .Values.a }}{{ end }}", "1"),
        ("{{ range .Values.list }}[{{ . }}]{{ end }}", "[p][q]"),
        ('{{ .Values.name | trunc 63 | trimSuffix "-" | quote }}', '"x"'),
        ('{{ default "d" .Values.no }} {{ default "d" .Values.a }}', "d 1"),
        ("{{ add .Values.a (mul 3 2) 1 }}", "8"),
        ('{{ printf "%s-%s" .Values.name "y" }}', "x--y"),
        ("a:{{ toYaml .Values.map | nindent 2 }}", "a:\n  k: v"),
        ('{{ define "f" }}<{{ .k }}>{{ end }}{{ include "f" .Values.map }}', "<v>"),
        ('{{ join "," .Values.list }}{{/* nothing */}}', "p,q"),
        ("{{ .Values.list | toYaml | indent 1 }}", " - p\n - q"),
    ],
)
def test_it_renders_as_go_does(template: str, text: str) -> None:
    assert Renderer(ROOT).render(template) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ .Values.missing }}",
        "{{ .Values.a.b }}",
        "{{ lookup }}",
        "{{ $x := 1 }}",
        "{{ if .Values.a }}",
        "{{ end }}",
        "{{ .Values.a",
        '{{ required "say it" .Values.no }}',
        "{{ .Values.a .Values.a }}",
        "{{ (.Values.a }}",
        "{{ range .Values.map }}{{ end }}",
        '{{ template "f" }}',
    ],
)
def test_unknown_template_functions_are_refused(template: str) -> None:
    with pytest.raises((TemplateError, ValueError)):
        Renderer(ROOT).render(template)
