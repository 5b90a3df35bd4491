"""`python -m httpx_safe_retry`: what it prints is what the library does, and fits a terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import h2.config
import h2.connection
import pytest

from httpx_safe_retry import Outcome, RetryPolicy, StopReason, _course, _table, _trials
from httpx_safe_retry._cli import main
from httpx_safe_retry._decide import Decision, Facts, decide
from httpx_safe_retry._terminal import wrapped
from httpx_safe_retry._trials import CASES, ERRORS
from tests.library import httpcore

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture(autouse=True)
def _a_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


Said = pytest.CaptureFixture[str]


def printed(said: Said, line: str) -> str:
    assert main(line.split()) == 0
    out, err = said.readouterr()
    assert err == ""
    return out


def rows(text: str) -> dict[str, str]:
    """The rows of an explanation: what stands behind each label, in one line."""
    found: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        if re.match(r"[A-Za-z -]{11}  \S", line):
            label = line[:11].strip() or label
            found[label] = f"{found.get(label, '')} {line[13:]}".strip()
    return found


def refused(said: Said, *arguments: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    out, err = said.readouterr()
    assert out == ""
    assert err.isascii()
    assert [line for line in err.splitlines() if len(line) > 80] == []
    return in_one_line(err)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def run_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "httpx_safe_retry", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def run_into(file: IO[bytes], line: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "httpx_safe_retry", *line.split()],
        stdout=file,
        stderr=subprocess.PIPE,
        # Without a buffer there is nothing left to write at the exit.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        check=False,
    )


# The table ---------------------------------------------------------------------------------------

# Written down independently: what came back, what it proves, then GET, PUT, keyed POST, POST.
EXPECTED = """
    2xx, 3xx                  executed   success   success    success    success
    408, 502, 503, 504        ambiguous  retry     retry (?)  retry (?)  uncertain
    429                       refused    retry     retry      retry      retry
    other 4xx, 501, 505, 511  refused    failure   failure    failure    failure
    500, other 5xx            ambiguous  failure   uncertain  uncertain  uncertain
    413 with Retry-After      refused    retry     retry      retry      retry
    503 marked as replayed    ambiguous  retry     retry (?)  uncertain  uncertain
    200, lost in its body     executed   retry     retry (?)  retry (?)  uncertain
    401 after ReadTimeout     refused    failure   uncertain  uncertain  -
    404 after ReadTimeout     refused    failure   uncertain  failure    -
    409 after ReadTimeout     ambiguous  failure   uncertain  retry (?)  -
    PoolTimeout               not_sent   retry     retry      retry      retry
    ConnectTimeout            not_sent   retry     retry      retry      retry
    ConnectError              not_sent   retry     retry      retry      retry
    ReadTimeout               ambiguous  retry     retry (?)  retry (?)  uncertain
    ReadError                 ambiguous  retry     retry (?)  retry (?)  uncertain
    WriteTimeout              ambiguous  retry     retry (?)  retry (?)  uncertain
    WriteError                ambiguous  retry     retry (?)  retry (?)  uncertain
    CloseError                ambiguous  retry     retry (?)  retry (?)  uncertain
    RemoteProtocolError       ambiguous  retry     retry (?)  retry (?)  uncertain
    UnsupportedProtocol       not_sent   failure   failure    failure    failure
    ProxyError                not_sent   failure   failure    failure    failure
    LocalProtocolError        ambiguous  failure   uncertain  uncertain  uncertain
    DecodingError             ambiguous  failure   uncertain  uncertain  uncertain
    TooManyRedirects          ambiguous  failure   uncertain  uncertain  uncertain
    untrusted certificate     not_sent   failure   failure    failure    failure
    network unreachable       not_sent   failure   failure    failure    failure
    proxy answered 407        not_sent   failure   failure    failure    failure
    proxy answered 503        not_sent   retry     retry      retry      retry
    head never went out       not_sent   retry     retry (?)  retry (?)  retry
    HTTP/2 REFUSED_STREAM     refused    retry     retry      retry      retry
    HTTP/2 GOAWAY, stream 0   refused    retry     retry      retry      retry
    HTTP/2 GOAWAY below ours  refused    retry     retry (?)  retry (?)  retry
    malformed answer          ambiguous  failure   uncertain  uncertain  uncertain
    unsendable request        not_sent   failure   failure    failure    failure
    error of your own body    ambiguous  as it is  as it is   as it is   as it is
    any other exception       ambiguous  as it is  as it is   as it is   as it is
    cancelled, Ctrl-C         ambiguous  as it is  as it is   as it is   as it is
"""


def parsed(text: str) -> dict[str, list[str]]:
    """The table, a row for each error class of those that share one."""
    found: dict[str, list[str]] = {}
    labels: list[str] = []
    for line in (line.strip() for line in text.splitlines() if line.strip()):
        label, *cells = re.split(r" {2,}", line)
        if cells:
            labels = [one.strip() for one in label.split(",")]
            if not all(name in ERRORS for name in labels if name):
                labels = [label]
            row = cells
        else:
            labels = label.split(", ")
        for name in labels:
            if name.rstrip(","):
                found[name.rstrip(",")] = row
    return found


def the_table(said: Said) -> str:
    head, *parts = re.split(r"-{70,}\n", printed(said, "table"))
    assert head.split() == ["what", "came", "back", "proves", "GET", "PUT", "POST+key", "POST"]
    *sections, legend = parts
    assert len(sections) == 3
    assert set(_table.MEANINGS) == {line.split("  ")[0] for line in legend.splitlines()[:7]}
    return "".join(sections)


def test_the_table_says_what_was_expected_before_it_was_asked(capsys: Said) -> None:
    assert parsed(the_table(capsys)) == parsed(EXPECTED)


def test_the_table_leaves_no_error_of_httpx_out(capsys: Said) -> None:
    bases = {"NetworkError", "ProtocolError", "RequestError", "TimeoutException", "TransportError"}
    assert set(ERRORS) - set(parsed(the_table(capsys))) == bases


def test_the_words_of_the_table_stand_in_columns(capsys: Said) -> None:
    lines = [line for line in printed(capsys, "table").splitlines() if "  " in line[24:]]
    starts = {tuple(m.end() for m in re.finditer(r"  (?=\S)", line[22:])) for line in lines[:-7]}
    assert starts == {(4, 15, 26, 37, 48)}


def test_each_word_of_the_table_is_explained() -> None:
    used = {cell for section in _table.sections() for row in section for cell in row.follows.cells}
    assert used == set(_table.MEANINGS)


def test_the_table_and_the_explanations_follow_what_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    def careless(policy: Any, facts: Facts, *others: Any) -> Decision:
        return decide(policy, replace(facts, keyed=True), *others)

    monkeypatch.setattr(_course, "decide", careless)
    table = parsed(the_table(capsys))
    assert table["408, 502, 503, 504"][-1] == table["ReadTimeout"][-1] == "retry (?)"
    found = rows(printed(capsys, "explain POST --status 503"))
    assert found["next"].startswith("sent again")


def http2_event(refusal: str) -> object:
    """What h2 makes of a server's refusal."""
    client = h2.connection.H2Connection()
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client.initiate_connection()
    head = {":method": "POST", ":scheme": "https", ":authority": "x", ":path": "/"}
    client.send_headers(1, list(head.items()))
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    if refusal == "REFUSED_STREAM":
        server.reset_stream(1, error_code=7)
    else:
        server.close_connection(last_stream_id=0)
    *_, event = client.receive_data(server.data_to_send())
    return event


@pytest.mark.parametrize(
    ("made_up", "refusal"),
    [(_trials.refused_stream(), "REFUSED_STREAM"), (_trials.went_away(0), "GOAWAY")],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_what_is_made_up_of_http2_proves_what_a_real_refusal_proves(
    made_up: _trials.Ending, refusal: str, keyed: bool
) -> None:
    cause = httpcore.RemoteProtocolError(http2_event(refusal))
    real = _trials.error("RemoteProtocolError", cause)
    reports = [
        _trials.run(_trials.request_for("POST", keyed=keyed), [ending]).report
        for ending in (made_up, real)
    ]
    for one, other in zip(*(report.attempts for report in reports), strict=True):
        assert (one.evidence, one.reason) == (other.evidence, other.reason)
        assert refusal in one.reason


def readme_rows() -> list[list[str]]:
    """The README's table of what is retried: what came back, retried?, an unkeyed POST?"""
    text = README.read_text(encoding="utf-8")
    section = text.partition("## What is retried")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_readme_says_of_each_status_and_error_what_is_done() -> None:
    asked = 0
    for came, retried, unkeyed in readme_rows():
        if " with " in came and "429" not in came:
            continue  # a 409 with a key, after another attempt
        for name in re.findall(r"\b[45]\d\d\b|[A-Z]\w+(?:Timeout|Error)", came):
            if name == "413":
                ending = _trials.answer(413, ("Retry-After", "1"))
            else:
                ending = _trials.answer(int(name)) if name.isdecimal() else _trials.error(name)
            for method, says in (("GET", retried), ("POST", unkeyed)):
                trial = _trials.run(_trials.request_for(method), [ending])
                assert trial.sent(2) == says.startswith("yes"), (method, name)
                if method == "POST" and not trial.sent(2):
                    uncertain = trial.report.outcome is Outcome.UNCERTAIN_WRITE
                    assert uncertain == ("uncertain" in says), (method, name)
            asked += 1
    assert asked >= 12


# Explanations ------------------------------------------------------------------------------------


def test_a_retry_is_explained_to_its_end(capsys: Said) -> None:
    text = printed(capsys, "explain post --key --status 503")
    assert text.splitlines()[0] == "POST with an idempotency key"
    assert rows(text) == {
        "attempt": "1 of 3",
        "came back": "answered 503 Service Unavailable",
        "it proves": "ambiguous: it may have run",
        "replay-safe": "yes: it carries an idempotency key",
        "next": "sent again after 0 s to 0.1 s (backoff), if the budget allows",
        "outcome": "uncertain_write",
        "stop reason": "max_attempts",
        "executed": "None: nobody knows",
        "you get": "the response, of which raise_for_outcome makes UncertainWriteError",
    }
    assert "If all that follow end like this:" in text
    assert "Use the same idempotency key: a new one could\nrun it twice." in text


def test_an_end_is_explained(capsys: Said) -> None:
    text = printed(capsys, "explain POST --error ReadTimeout")
    assert text.splitlines()[0] == "POST without an idempotency key"
    assert rows(text) == {
        "attempt": "1 of 3",
        "came back": "ReadTimeout",
        "it proves": "ambiguous: it may have run",
        "replay-safe": "no: sending it again could run it twice",
        "next": "not sent again",
        "outcome": "uncertain_write",
        "stop reason": "not_replay_safe",
        "executed": "None: nobody knows",
        "you get": "UncertainWriteError, which is a ReadTimeout as well",
    }
    assert "If all that follow" not in text
    assert "It was not sent again because repeating it could run it twice." in text


@pytest.mark.parametrize(
    ("line", "label", "words"),
    [
        ("GET --status 503", "replay-safe", "yes: GET is idempotent"),
        ("POST --status 503 --idempotent yes", "replay-safe", "yes: POST is declared idempotent"),
        ("GET --status 503 --idempotent no", "next", "not sent again"),
        ("POST --error ConnectError", "replay-safe", "yes: no attempt has run it so far"),
        ("POST --error ConnectError", "it proves", "not_sent: it was not sent"),
        ("POST --error ConnectError", "executed", "False: the server provably did not run it"),
        ("POST --status 429", "outcome", "exhausted"),
        ("PUT --status 404", "outcome", "permanent_failure"),
        ("PUT --status 404", "executed", "False: the server provably did not run it"),
        ("POST --status 201", "outcome", "success"),
        ("POST --status 201", "executed", "True: the server ran it"),
        ("POST --status 201", "you get", "the response"),
        ("POST --status 201", "it proves", "executed: it ran"),
        ("GET --status 799", "came back", "answered 799"),
        (
            "GET --status 429 --retry-after 7",
            "next",
            "sent again after 7 s (retry-after), if the budget allows",
        ),
        (
            "GET --status 429 --retry-after 120",
            "came back",
            "answered 429 Too Many Requests",
        ),
        ("GET --status 429 --retry-after 120", "Retry-After", "120 s: cut to 60 s"),
        ("POST --status 503", "came back", "answered 503 Service Unavailable"),
        ("GET --error ReadError --max-attempts 1", "came back", "ReadError"),
        ("GET --status 503 --after 503 --after 429", "came back", "answered 503 Service"),
        ("POST --error no-head", "came back", "ReadError"),
        ("GET --error other", "you get", "the RuntimeError as it was"),
        ("GET --error cancelled", "outcome", "cancelled"),
        ("POST --error own-body", "you get", "the ReadError as it was"),
        ("POST --error unsendable", "it proves", "not_sent: it was not sent"),
        ("POST --error lost-body", "executed", "True: the server ran it"),
        ("POST --after refused-stream --status 200", "outcome", "success"),
        (
            "POST --key --status 503 --replayed",
            "came back",
            "answered 503 Service Unavailable, the recorded result of this key",
        ),
        ("GET --status 503 --retry-after soon", "Retry-After", "not followed: malformed: 'soon'"),
        ("GET --status 503 --retry-after s\u00f6on", "Retry-After", "not followed: malformed"),
        (
            "GET --status 503 --after 503",
            "next",
            "sent again after 0 s to 0.2 s (backoff), if the budget allows",
        ),
        ("GET --error ReadError --after 503 --after PoolTimeout", "attempt", "3 of 3"),
        ("GET --error ReadError --after 503 --after PoolTimeout", "next", "not sent again"),
        ("GET --error ReadError --max-attempts 1", "attempt", "1 of 1"),
        ("DELETE --after ReadTimeout --status 404", "outcome", "uncertain_write"),
        ("DELETE --after ConnectError --status 404", "outcome", "permanent_failure"),
        (
            "POST --key --after ReadTimeout --status 409",
            "came back",
            "answered 409 Conflict: an earlier attempt is still running",
        ),
        ("M-SEARCH --status 503", "outcome", "uncertain_write"),
    ],
)
def test_an_explanation_tells(capsys: Said, line: str, label: str, words: str) -> None:
    assert rows(printed(capsys, f"explain {line}"))[label].startswith(words)


@pytest.mark.parametrize(
    "line",
    ["POST --status 503", "POST --error ReadTimeout", "GET --status 503 --max-attempts 1"],
)
def test_what_came_back_is_told_without_what_follows(capsys: Said, line: str) -> None:
    came = rows(printed(capsys, f"explain {line}"))["came back"]
    assert came in {"answered 503 Service Unavailable", "ReadTimeout"}


@pytest.mark.parametrize("name", CASES)
def test_each_further_row_of_the_table_can_be_explained(capsys: Said, name: str) -> None:
    evidence, *cells = parsed(the_table(capsys))[CASES[name].label]
    for (method, keyed), cell in zip(_table.KINDS, cells, strict=True):
        line = f"explain {method} {'--key' if keyed else ''} --error {name}"
        found = rows(printed(capsys, line))
        assert found["next"].startswith("sent again") == cell.startswith("retry")
        assert found["you get"].endswith("as it was") == (cell == "as it is")
        if (method, keyed) == ("POST", False):
            assert found["it proves"].startswith(f"{evidence}: ")


def test_a_conflict_of_a_key_is_worth_another_try_later(capsys: Said) -> None:
    text = in_one_line(printed(capsys, "explain POST --key --status 409"))
    assert "because the same again, at once, is not expected to help." in text
    assert "send the same again later" in text
    text = in_one_line(printed(capsys, "explain POST --status 409"))
    assert "because the same again is not expected to help." in text


def test_a_date_is_told_from_now(capsys: Said) -> None:
    assert main(["explain", "GET", "--status", "503", "--retry-after", RFC_DATE]) == 0
    found = rows(capsys.readouterr().out)
    assert found["Retry-After"] == f"not followed: in the past: '{RFC_DATE}'"


RFC_DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


def test_a_long_line_goes_on_under_itself(capsys: Said) -> None:
    assert (
        "you get      the response, of which raise_for_outcome makes\n"
        "             RetriesExhaustedError\n"
    ) in printed(capsys, "explain GET --status 503")


def test_a_number_stays_with_its_unit() -> None:
    assert wrapped("more than 60 s or 1 second", 13) == ["more than", "60 s or 1", "second"]


def test_no_budget_ends_an_explanation(capsys: Said) -> None:
    found = rows(printed(capsys, "explain GET --status 503 --max-attempts 50"))
    assert found["stop reason"] == "max_attempts"


def test_a_success_needs_no_advice(capsys: Said) -> None:
    assert printed(capsys, "explain GET --status 200").endswith("you get      the response\n")


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("ask", ["GET", "POST", "POST --key"])
def test_each_error_is_explained_as_it_is_handled(capsys: Said, name: str, ask: str) -> None:
    found = rows(printed(capsys, f"explain {ask} --error {name}"))
    report = _trials.run(
        _trials.request_for(ask[:4].strip(), keyed="key" in ask), [_trials.error(name)]
    ).report
    assert Outcome(found["outcome"]) is report.outcome
    assert StopReason(found["stop reason"]) is report.stop_reason
    assert found["executed"].startswith(str(report.executed))
    assert found["you get"].endswith(f"Error, which is a {name} as well")
    assert found["next"].startswith("sent again") == (len(report.attempts) > 1)


# Bad questions -----------------------------------------------------------------------------------


def test_an_unknown_error_is_told_the_known_ones(capsys: Said) -> None:
    words = refused(capsys, "explain", "GET", "--error", "Timeout")
    assert "'Timeout' is no error that an attempt ends in" in words
    assert f"Those are: {', '.join([*ERRORS, *CASES])}" in words


def test_the_help_names_each_error(capsys: Said) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    words = in_one_line(capsys.readouterr().out)
    assert f" {', '.join(ERRORS)} " in words
    assert all(f" {name} {case.label} " in words for name, case in CASES.items())


@pytest.mark.parametrize(
    "status", ["99", "1000", "099", "0503", "50.3", "-1", "abc", "\u0665\u0660\u0663"]
)
@pytest.mark.parametrize("option", ["--status", "--after"])
def test_a_status_has_three_digits(capsys: Said, status: str, option: str) -> None:
    words = refused(capsys, "explain", "GET", "--status", "503", f"{option}={status}")
    assert "is no status: 100 to 999" in words or "is no error" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["tables"], "invalid choice: 'tables'"),
        (["explain"], "required: METHOD"),
        (["explain", "GET"], "one of the arguments --status --error is required"),
        (["explain", "GET", "--status", "503", "--error", "ReadError"], "not allowed with"),
        (
            ["explain", "GET", "--error", "ReadError", "--retry-after", "1"],
            "--retry-after belongs to an answer: it needs --status",
        ),
        (
            ["explain", "GET", "--error", "ReadError", "--replayed"],
            "--replayed belongs to an answer: it needs --status",
        ),
        (["explain", "G T", "--status", "503"], "'G T' is no HTTP method"),
        (["explain", "G\u00c9T", "--status", "503"], "'G\\xc9T' is no HTTP method"),
        (["explain", "GET", "--status", "503", "\u20ac\x1b[31m"], "arguments: \\u20ac\\x1b[31m"),
        (["explain", "GET", "--status", "5" * 300], "555555"),
        (
            ["explain", "GET", "--status", "503", "--max-attempts", "1001"],
            "--max-attempts: no more than 1000 are played here",
        ),
        (
            ["explain", "GET", "--after", "own-body", "--status", "200"],
            "there would be no attempt 2: it ends with attempt 1",
        ),
        (["explain", "GET", "--status", "503", "--max-attempts", "0"], "max_attempts must be at"),
        (
            ["explain", "POST", "--status", "503", "--after", "ReadTimeout"],
            "there would be no attempt 2: it ends with attempt 1",
        ),
        (
            ["explain", "GET", "--status", "503", "--max-attempts", "1", "--after", "503"],
            "there would be no attempt 2: it ends with attempt 1",
        ),
    ],
)
def test_what_can_not_be_answered_is_refused(
    capsys: Said, arguments: Sequence[str], words: str
) -> None:
    assert words in refused(capsys, *arguments)


# The terminal ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "table",
        "--help",
        "table --help",
        "explain --help",
        "explain POST --key --status 503",
        "explain POST --error RemoteProtocolError",
        "explain POST --status 201",
        f"explain {'LONG-' * 30}METHOD --status 429 --retry-after 86400",
        f"explain {'LONG' * 30} --status 503 --idempotent yes",
        f"explain GET --status 503 --retry-after {'9' * 300}",
        "explain POST --key --status 503 --replayed",
        f"explain GET --status 503 --retry-after {'x' * 300}",
    ],
)
@pytest.mark.parametrize("columns", ["80", "200", "60"])
def test_each_line_is_plain_and_fits_80_columns(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, line: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with suppress(SystemExit):
        main(line.split())
    out, err = capsys.readouterr()
    assert err == ""
    assert out.isascii()
    assert [text for text in out.splitlines() if len(text) > 80 or text != text.rstrip()] == []


def test_the_help_shows_examples_that_work(capsys: Said) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    examples = re.findall(r"(?m)^  python -m httpx_safe_retry (.*)$", capsys.readouterr().out)
    assert len(examples) >= 5
    for example in examples:
        assert printed(capsys, example)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "terminal", "colourful"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm"}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": ""}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Said,
    environment: dict[str, str],
    terminal: bool,
    colourful: bool,
) -> None:
    line = "explain POST --status 503"
    plain = printed(capsys, line)
    stream = Terminal() if terminal else io.StringIO()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(line.split()) == 0
    text = stream.getvalue()
    assert ("\x1b[" in text) == colourful
    # Nothing but the colour differs, so that columns stay where they are.
    assert re.sub(r"\x1b\[\d+m", "", text) == plain
    assert ("\x1b[31muncertain_write\x1b[0m" in text) == colourful


def test_the_table_has_its_words_in_colour(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    plain = printed(capsys, "table")
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = printed(capsys, "table")
    assert re.sub(r"\x1b\[\d+m", "", text) == plain
    for code, word in [("1", "GET"), ("32", "success"), ("36", "retry"), ("31", "uncertain")]:
        assert re.search(rf"\x1b\[{code}m{word} *\x1b\[0m", text)
    assert text.count("\x1b[0m") * 2 == text.count("\x1b[")


# As a program ------------------------------------------------------------------------------------


def test_it_runs_as_a_module(capsys: Said) -> None:
    done = run_module("table")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == printed(capsys, "table")


def test_it_exits_with_2_when_it_was_asked_wrongly() -> None:
    done = run_module("explain", "GET", "--error", "Nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m httpx_safe_retry explain")


def test_it_says_nothing_about_uncertain_writes_beside_its_answer() -> None:
    # The library warns of them, and Python prints warnings that nobody handles.
    done = run_module("explain", "POST", "--status", "503")
    assert (done.returncode, done.stderr) == (0, "")


# A pipe that is closed is EINVAL there, which Python does not make a BrokenPipeError of.
@pytest.mark.skipif(os.name == "nt", reason="Windows has another error for it")
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = run_into(closed, "table")
    assert (done.returncode, done.stderr) == (1, b"")


# A pipe that is closed is EINVAL there, which Python does not make a BrokenPipeError of.
@pytest.mark.skipif(os.name == "nt", reason="Windows has another error for it")
@pytest.mark.parametrize("line", ["explain GET --status 200", "--help", "explain --help"])
def test_a_short_answer_that_nobody_reads_is_no_error_either(line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = run_into(closed, line)
    assert (done.returncode, done.stderr) == (1, b"")


# Linux has a device that is full; elsewhere the test would have to fill a real disk.
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is full")
@pytest.mark.parametrize("line", ["table", "explain GET --status 200", "--help"])
def test_an_answer_that_can_not_be_written_is_said_to_be_lost(line: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_into(full, line)
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("python -m httpx_safe_retry: can't write the answer: No space left")
    assert len(line) <= 80


@pytest.mark.parametrize("line", ["table", "--help"])
def test_without_an_output_it_says_so(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        main([line])
    words = "python -m httpx_safe_retry: there is no standard output to write to"
    assert ended.value.code == words


def test_the_answers_are_about_the_default_policy(capsys: Said) -> None:
    assert f"At most {RetryPolicy().max_attempts} attempts in all" in printed(capsys, "table")
