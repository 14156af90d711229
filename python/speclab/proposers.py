"""Measures the acceptance of a proposer that is written in Python: `speclab.measure_proposer`."""

import datetime
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .binary import find_binary
from .errors import Error
from .proposals import BadAnswer, DraftTree
from .proposer_server import Failure, Server
from .run import Run, load

PathLike = str | os.PathLike[str]
SOCKET = "SPECLAB_PROPOSER"  # environment variable that tells the engine where the proposer listens
STRATEGY = "outside_proposer"
TIME_LIMIT = 30.0  # seconds; the default of the strategy's option
MOST_SECONDS = (0.01, 86400)  # the range of the option
LONGEST_FOLDER = 70  # bytes; the path of a socket may have 107
Tokens = Sequence[int] | np.ndarray
Proposed = Tokens | DraftTree | tuple[Tokens | None, np.ndarray] | None


class Proposer(Protocol):
    """What `measure_proposer` asks for tokens. An object with this method is enough; it need not inherit from this class.

    It may also have `begin(prompt_ids)`, called when a text begins, and `observe(accepted, tokens)`, called after each step.
    accepted: how many tokens of the draft were accepted. tokens: all tokens that the step added to the text.
    """

    def propose(self, context_ids: np.ndarray, k: int, /) -> Proposed:
        """Proposes at most k tokens that follow context_ids, which is read-only: the prompt and the text so far.

        Returns one of these:
        - tokens. Each counts as one-hot: q is 1 for this token. The rule `rejection` accepts it with the
          target's probability of it.
        - (tokens, q_rows). q_rows[i], [vocab], is the law of tokens[i] after the tokens before it. At temperature 0 the tokens are
          drafted as they are. Above 0 the engine draws each token from its row. If it draws another token than tokens[i], it calls
          propose again in the same step, with the drawn tokens at the end of context_ids.
        - (None, q_row). The engine draws one token from this row, or takes the best one at temperature 0, and calls propose again.
        - a DraftTree of depth k at most.
        - None or no tokens: this step drafts no more.
        """
        ...


def measure_proposer(
    proposer: Proposer,
    *,
    target: PathLike | Mapping[str, Any],
    prompts: PathLike | Sequence[str | Mapping[str, Any]],
    gamma: int | Sequence[int] = 4,
    rule: str | Sequence[str] = "auto",
    temperature: float = 0.0,
    max_tokens: int = 128,
    time_limit: float = TIME_LIMIT,
    seed: int | Sequence[int] = 1,
    name: str | None = None,
    out: PathLike | None = None,
    chat_template: bool | str = True,
    options: Mapping[str, Any] | None = None,
    cases: Sequence[Mapping[str, Any]] = (),
    config: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = (),
    progress: bool = False,
) -> Run:
    """Decodes with the target while `proposer` drafts, and returns the run. The run also has an autoregressive case.

    The engine (the `speclab` binary) does everything but propose: it runs the target, draws tokens, applies the acceptance rule, keeps
    the KV cache and writes the record. So the text is exactly as with any other drafter, whatever the proposer returns. tau, alpha
    and all other counts are measurements. The times contain the proposer and the messages to it, so they do not show how fast the
    method is; the column `times_note` of `Run.cases` says so.

    proposer: an object with a method propose, see Proposer. target: the path of a model, or {"markov": {...}}. prompts: a prompt
    file, or a list of texts or of entries of such a file. gamma: the largest k, which is the largest number of tokens of a
    chain or the largest depth of a tree. A sequence of gammas or rules gives one case for each. rule: an acceptance rule (`speclab list acceptances`).
    max_tokens: the largest number of tokens of a text. time_limit: the longest wait for one answer of the proposer, in seconds. seed: the seed of the random numbers; a sequence gives one text for each seed. name: the name of the
    proposer in the record; by default that of its class. out: the folder of the run; by default a new one below results/runs. chat_template: as "chat_template"
    of a config. options: further options of every case, such as {"ignore_eos": True}. cases: further cases of the run, to compare
    with. config: further keys of the config, such as {"bounds": True}. arguments: further words for `speclab run`, such as
    ["--threads", "1"]. progress: show what the engine prints.

    A call of the proposer that takes longer than time_limit is interrupted, and speclab.Error is raised. Python can interrupt the
    main thread only. In another thread the engine stops waiting, but this function returns only after the proposer.

    An exception of the proposer ends the run and is raised here again. Its note says in which step and prompt it was raised. The lines
    that were finished before it stay in the folder. Raises Error if the proposer returns something that makes no sense, if the
    engine cannot run this experiment, and if a text differs from the autoregressive one although both must be equal.
    """
    own_name = type(proposer).__name__ if name is None else name
    if not re.fullmatch(r"[\w.+-]{1,100}", own_name, re.ASCII) or own_name.startswith("."):
        raise Error(f"name: got {own_name!r}, expected letters, digits and . _ + -. Give the proposer such a name.")
    if not callable(getattr(proposer, "propose", None)):
        raise Error(
            f"{own_name}: has no method propose(context_ids, k). Write one; speclab.Proposer says what it returns."
        )
    if not MOST_SECONDS[0] <= time_limit <= MOST_SECONDS[1]:  # not true of nan either
        raise Error(
            f"time_limit: got {time_limit!r}, expected {MOST_SECONDS[0]} to {MOST_SECONDS[1]} seconds. Give such a number."
        )
    place = pathlib.Path(out) if out is not None else _new_folder(own_name)
    case: dict[str, Any] = {"strategy": STRATEGY, "proposer": own_name, "gamma": _plain(gamma)}
    if time_limit != TIME_LIMIT:
        case["time_limit"] = time_limit
    if rule != "auto":
        case["rule"] = _plain(rule)
    of_file = isinstance(prompts, str | os.PathLike)
    experiment: dict[str, Any] = {
        "name": own_name,
        "description": f"The acceptance of the proposer {own_name}, which is not part of the engine. The times contain the proposer, so they do not show how fast the method is.",
        "target": dict(target) if isinstance(target, Mapping) else os.fspath(target),
        "prompts": {
            **({"file": os.fspath(prompts)} if of_file else {"inline": list(prompts)}),
            "chat_template": chat_template,
        },
        "seeds": [seed] if isinstance(seed, int) else list(seed),
        "repeats": 1,
        "warmup": 0,
        "teacher_forced": False,
        "calibration": False,
        "options": {"temperature": temperature, "max_tokens": max_tokens, **(options or {})},
        "cases": [{"strategy": "autoregressive"}, case, *(dict(one) for one in cases)],
        **(config or {}),
    }
    server = _run(proposer, experiment, place, arguments, progress, time_limit)
    if server.failure is not None:
        _raise(server.failure, own_name, place)
    return load(place)


def _plain(value: Any) -> Any:
    """The value as a config has it: a sequence becomes a list."""
    return value if isinstance(value, int | str) else list(value)


def _new_folder(name: str) -> pathlib.Path:
    return pathlib.Path("results/runs") / f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def _run(
    proposer: Proposer,
    experiment: dict[str, Any],
    place: pathlib.Path,
    arguments: Sequence[str],
    progress: bool,
    time_limit: float,
) -> Server:
    """Runs the engine, and answers its requests until it ends. Raises Error if the engine failed but the proposer did not."""
    binary = find_binary()
    base = tempfile.gettempdir()
    with (
        tempfile.TemporaryDirectory(
            prefix="speclab-", dir=base if len(os.fsencode(base)) <= LONGEST_FOLDER else "/tmp"
        ) as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        address = os.path.join(folder, "socket")
        listener.bind(address)
        listener.listen()
        file, log = pathlib.Path(folder) / f"{experiment['name']}.json", pathlib.Path(folder) / "log"
        try:
            file.write_text(json.dumps(experiment), encoding="utf-8")
        except TypeError as error:
            raise Error(f"the config of the run: {error}. Give numbers, texts, lists and objects of JSON.") from error
        command = [str(binary), "run", str(file), "--out", os.fspath(place), *arguments, *([] if progress else ["-q"])]
        with log.open("wb") as written:
            engine = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=None if progress else subprocess.DEVNULL,
                stderr=None if progress else written,
                env={**os.environ, SOCKET: address},
            )
            server = Server(proposer, listener, time_limit)
            try:
                server.serve(engine)
            finally:
                _end(engine)
        if server.failure is None and engine.returncode != 0:
            raise Error(_reason(place, log.read_text(encoding="utf-8", errors="replace"), engine.returncode))
    return server


def _end(engine: subprocess.Popen[bytes]) -> None:
    """Ends the engine if it still runs, which happens only when serving failed."""
    if engine.poll() is None:
        engine.terminate()
        try:
            engine.wait(timeout=10)
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.wait()


def _reason(place: pathlib.Path, printed: str, code: int) -> str:
    """Why the engine failed: the first error of the record, or what it printed."""
    errors: list[dict[str, Any]] = []
    if code == 1:
        try:
            errors = json.loads((place / "summary.json").read_text(encoding="utf-8"))["errors"]
        except (OSError, ValueError, KeyError):
            pass  # the printed text says what happened
    if errors:
        first = errors[0]
        more = f" The record has {len(errors)} errors." if len(errors) > 1 else ""
        where = f", prompt {first['prompt']}" if first["prompt"] is not None else ""
        return f"{first['case']}{where}: {first['message']}. The record is in {place}.{more}"
    return printed.strip().removeprefix("error: ") or f"speclab run ended with exit code {code}. See what it printed."


def _failed_line(place: pathlib.Path) -> dict[str, Any] | None:
    """The first line of the record that ended in an error. Its prompt is the one on which the proposer was at work."""
    for file in sorted((place / "cases").glob("*.jsonl")):
        for text in file.read_text(encoding="utf-8").split("\n")[:-1]:
            line = json.loads(text)
            if "error" in line:
                return dict(line)
    return None


def _raise(failure: Failure, name: str, place: pathlib.Path) -> None:
    """Raises the exception of a proposer again, with the place where it was raised."""
    line = _failed_line(place)
    step = "at the beginning of a text" if failure.step is None else f"in step {failure.step}"
    turn = f", turn {failure.turn}" if failure.turn > 0 else ""
    prompt = (
        f"prompt {line['prompt']!r}, seed {line['seed']}{turn}" if line else "a prompt that the record does not name"
    )
    where = f"{name}.{failure.method}() {step} of {prompt}"
    if isinstance(failure.error, BadAnswer):
        raise BadAnswer(f"{where}: {failure.error}.") from None
    failure.error.add_note(f"Raised by {where}. Finished lines are in {place}.")
    raise failure.error
