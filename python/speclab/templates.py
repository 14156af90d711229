"""Renders prompts in the chat form of a model whose template the engine does not know: `speclab.render`."""

import datetime
import hashlib
import importlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import Error

PathLike = str | os.PathLike[str]
CONFIG, OWN_FILE = "tokenizer_config.json", "chat_template.jinja"
FIELDS = ("id", "question_id", "category", "split", "turns", "options", "reference", "source")


def render(
    prompts: PathLike | Sequence[str | Mapping[str, Any]],
    tokenizer_config: PathLike,
    to: PathLike | None = None,
    *,
    system: str = "",
    template: str = "default",
    first_turn: bool = False,
    date: datetime.date | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Renders prompts with the chat template of a model, and returns the entries of a prompt file.

    to: the prompt file to write, which `speclab run` takes as it is; None for no file.
    prompts: a prompt file (JSONL, as in configs/README.md), or a list of texts or of entries of such a file. tokenizer_config: a model's
    tokenizer_config.json or its folder; a chat_template.jinja beside it takes precedence over its template
    "default", as in transformers. template: the name of the template, for a model with several. system: a system message. date: the date for templates that
    print one; None for today. variables: further variables of the template, such as {"enable_thinking": False}.
    Each prompt keeps its id, category, split and options. Its `renderer` names jinja2's version and the SHA-256 of the template; the engine
    then adds nothing to the text, and config.json of the run repeats `renderer`. A prompt of several turns cannot be rendered, because its
    later turns follow answers of the model; first_turn keeps only its first turn.

    The template runs in jinja2's sandbox with the settings of transformers. If jinja2 is missing, the function raises Error before it reads a file.
    """
    jinja2 = _jinja2()
    source, tokens = _template_of(pathlib.Path(tokenizer_config), template)
    shown = datetime.datetime.combine(date or datetime.date.today(), datetime.time())
    program = _compile(jinja2, source, tokenizer_config, shown)
    note = f"jinja2 {jinja2.__version__}, chat template with SHA-256 {hashlib.sha256(source.encode()).hexdigest()}"
    if "strftime_now" in source:
        note += f", date {shown:%Y-%m-%d}"
    entries = []
    for where, prompt in _prompts(prompts):
        turns = prompt["turns"]
        if len(turns) > 1 and not first_turn:
            raise Error(
                f"{where}: {len(turns)} turns, expected one, because later turns follow the model's answers. Give first_turn=True to keep the first."
            )
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": turns[0]})
        values = {**tokens, **(variables or {}), "messages": messages, "add_generation_prompt": True}
        try:
            text = program.render(**values)
        except Exception as error:  # a template is a foreign program: it may raise anything
            raise Error(f"{where}: the chat template of {tokenizer_config} failed: {error}") from error
        entries.append({**prompt, "turns": [text], "renderer": note})
    if not entries:
        raise Error(f"{prompts}: no prompts. Give at least one.")
    if to is not None:
        try:
            lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries]
            pathlib.Path(to).write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            raise Error(f"{to}: {error.strerror}. Name a file that can be written.") from error
    return entries


def _jinja2() -> Any:
    try:
        return importlib.import_module("jinja2")
    except ImportError:
        raise Error("render needs the package jinja2. Install it: pip install jinja2.") from None


def _read(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{file}: {error}. Give the {CONFIG} of the model, or the folder with it.") from error


def _template_of(path: pathlib.Path, name: str) -> tuple[str, dict[str, str]]:
    """(source of the template, {bos_token: spelling, ...})"""
    file = path / CONFIG if path.is_dir() else path
    try:
        config = json.loads(_read(file))
    except ValueError as error:
        raise Error(f"{file}: not JSON ({error}). Give the {CONFIG} of the model.") from error
    if not isinstance(config, dict):
        raise Error(f"{file}: no JSON object. Give the {CONFIG} of the model.")
    tokens = {}
    for key, value in config.items():
        spelling = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(spelling, str):
            tokens[key] = spelling
    own = file.with_name(OWN_FILE)
    found = _read(own) if own.exists() and name == "default" else config.get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        if name not in named:
            raise Error(f"{file}: no chat template named {name!r}. There are: {', '.join(map(str, named))}.")
        found = named[name]
    elif name != "default":
        raise Error(f"{file}: no list of named chat templates, so there is none named {name!r}.")
    if not isinstance(found, str):
        raise Error(f"{file}: no chat_template. Give the {CONFIG} of a chat model, with its {OWN_FILE} if it has one.")
    return found, tokens


def _compile(jinja2: Any, source: str, origin: PathLike, shown: datetime.datetime) -> Any:
    """The template with the settings, filters and functions that transformers gives to chat templates."""
    nodes = importlib.import_module("jinja2.ext")
    sandbox = importlib.import_module("jinja2.sandbox")

    class Generation(nodes.Extension):
        """{% generation %} marks the model's own texts for training; here it has no effect."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, nodes.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: (
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: shown.strftime(form)
    try:
        return environment.from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise Error(f"{origin}: the chat template is no valid Jinja program: {error} (line {error.lineno}).") from error


def _prompts(prompts: PathLike | Sequence[str | Mapping[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """(where, entry) of each prompt. An entry without an id gets its number as id, as in the engine."""
    found: list[tuple[str, Any]] = []
    if isinstance(prompts, str | os.PathLike):
        for number, line in enumerate(_read_prompts(prompts).split("\n"), 1):
            if line.strip():
                try:
                    found.append((f"{prompts}: line {number}", json.loads(line)))
                except ValueError as error:
                    raise Error(f"{prompts}: line {number}: not JSON ({error}).") from error
    else:
        found = [(f"prompt {number}", prompt) for number, prompt in enumerate(prompts, 1)]
    return [(where, _entry(where, number, value)) for number, (where, value) in enumerate(found, 1)]


def _read_prompts(file: PathLike) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{file}: {error}. Give a prompt file, or a list of texts.") from error


def _entry(where: str, number: int, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"id": str(number), "turns": [value]}
    if not isinstance(value, Mapping):
        raise Error(f"{where}: {type(value).__name__}, expected a text or an object with turns.")
    if "renderer" in value:
        raise Error(f"{where}: rendered already ({value['renderer']}). Give the prompts as they were before.")
    unknown = [key for key in value if key not in FIELDS]
    if unknown:
        raise Error(f"{where}: unknown key {unknown[0]!r}, expected some of {', '.join(FIELDS)}.")
    turns = value.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        raise Error(f"{where}: turns is {turns!r}, expected a list of texts.")
    return dict(value) if "id" in value or "question_id" in value else {"id": str(number), **value}
