"""What is shown of a request and of its errors, and what never is."""

from __future__ import annotations

import pytest

from httpx_safe_retry._redact import shown_text, shown_url
from tests.library import httpx

WITHHELD = "text withheld: it may quote the request"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org", "https://example.org/"),
        ("https://user:pw@example.org/x?token=t#f", "https://example.org/x"),
        ("http://example.org:8080/a/b", "http://example.org:8080/a/b"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org/?", "https://example.org/"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x"),
        ("https://bücher.example/ü?ü", "https://xn--bcher-kva.example/%C3%BC"),
        # A path can't break out of its line.
        ("https://example.org/a%0Ab%3Fc", "https://example.org/a%0Ab%3Fc"),
    ],
)
def test_of_a_url_scheme_host_port_and_path_are_shown(url: str, shown: str) -> None:
    assert shown_url(httpx.URL(url)) == shown


def shown(
    text: str, url: str = "https://example.org/path", headers: dict[str, str] | None = None
) -> str:
    return shown_text(text, httpx.URL(url), httpx.Headers(headers).raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "timed out",
        "[Errno 111] Connection refused",
        "Server disconnected without sending a response.",
        "https://example.org/path did not answer",
    ],
)
def test_a_text_without_secrets_is_shown_as_it_is(text: str) -> None:
    url = "https://example.org/path?a=1&page=2&on=to"
    headers = {"DNT": "1", "X-Version": "11", "If-None-Match": "*", "X-Blank": " ", "X-Empty": ""}
    assert shown(text, url, headers) == text


@pytest.mark.parametrize(
    "text",
    [
        "failed for https://user:pw@example.org/x",
        "login of user failed",
        "wrong password pw",
        "(pw)",
        "wrong password p%77",
        "GET /x?token=t&session=abcd",
        "unknown session 'abcd'",
        "no anchor: frag",
    ],
)
def test_userinfo_query_and_fragment_are_withheld(text: str) -> None:
    url = "https://user:p%77@example.org/x?token=t&session=abcd#frag"
    assert shown(text, url) == WITHHELD


def test_a_password_is_withheld_as_it_was_written_and_as_it_is_meant() -> None:
    url = "https://user:caf%C3%A9@example.org/"
    assert shown("wrong password café", url) == WITHHELD
    assert shown("wrong password caf%C3%A9", url) == WITHHELD


@pytest.mark.parametrize(
    ("header", "value", "text"),
    [
        ("Authorization", "Bearer abcd", "Illegal header value b'Bearer abcd'"),
        ("authorization", "Bearer abcd", "token abcd is not valid"),
        ("Authorization", "z", "z is not valid"),
        ("Idempotency-Key", "k", "key k is in use"),
        ("Idempotency-Key", "k-1 x", "key k-1 x is in use"),
        ("Cookie", "session=abcd; theme=dark", "no session abcd"),
        ("Proxy-Authorization", "Basic dTpw", "Basic dTpw was refused"),
        ("X-Api-Key", "abc\n", r"Illegal header value b'abc\n'"),
        ("X-Api-Key", "a\x00c", r"Illegal header value b'a\x00c'"),
        ("X-Api-Key", "caf\u00e9", "no key caf\u00e9"),
        ("X-Api-Key", "caf\u00e9", r"Illegal header value b'caf\xc3\xa9'"),
        ("X-Api-Key", "$abc$", "no key$abc$here"),
    ],
)
def test_header_values_are_withheld(header: str, value: str, text: str) -> None:
    headers = [(header.encode(), value.encode("utf-8"))]
    assert shown_text(text, httpx.URL("https://example.org/"), headers) == WITHHELD


def test_a_header_of_another_encoding_is_withheld_as_well() -> None:
    headers = [(b"X-Api-Key", "caf\u00e9".encode("latin-1"))]
    assert shown_text("no key caf\u00e9", httpx.URL("https://example.org/"), headers) == WITHHELD


@pytest.mark.parametrize(
    "name",
    [
        "Accept",
        "Accept-Encoding",
        "Accept-Language",
        "Cache-Control",
        "Connection",
        "Content-Encoding",
        "Content-Length",
        "Content-Type",
        "DNT",
        "Expect",
        "Host",
        "Pragma",
        "TE",
        "Transfer-Encoding",
        "Upgrade-Insecure-Requests",
        "User-Agent",
    ],
)
def test_headers_that_everybody_sends_hide_nothing(name: str) -> None:
    assert shown("no python", headers={name: "python"}) == "no python"
    assert shown("no python", headers={f"X-{name}": "python"}) == WITHHELD


def test_a_secret_inside_a_longer_word_is_not_that_secret() -> None:
    headers = {"X-Key": "abc"}
    assert shown("abcd 0abc _abc", headers=headers) == "abcd 0abc _abc"
    assert shown("abcd 0abc -abc", headers=headers) == WITHHELD


def test_a_text_is_one_short_printable_line() -> None:
    assert shown("a\r\nb\tc\x1b[31md\u202ee\u2028f") == "a  b c [31md e f"
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 201) == "x" * 200 + "..."


def test_a_secret_at_the_end_of_a_long_text_is_found() -> None:
    assert shown("x " * 1000 + "abcd", headers={"X-Key": "abcd"}) == WITHHELD
