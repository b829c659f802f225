"""Which URLs may be asked: every way to write an address that is not public, and what the operator may open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.outbound import TargetRefused
from accord.outbound.policy import MAX_LENGTH, Policy
from tests.cases import each

STRICT = Policy()

HOSTILE = [
    # addresses of this machine and of its neighbours
    "https://127.0.0.1/",
    "https://127.0.0.1:8443/x",
    "https://10.0.0.8/",
    "https://192.168.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://0.0.0.0/",
    "https://0/",
    "https://255.255.255.255/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b::169.254.169.254]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[2606:4700::1%25eth0]/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://api.localhost/",
    "https://127.0.0.1./",
    # other ways to write them
    "https://127.1/",
    "https://127.0.1/",
    "https://0x7f.1/",
    "https://0x7f000001/",
    "https://0x7f.0.0.0x1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://2130706433/",
    "https://3232235777/",
    "https://127.0.0.256/",
    "https://8.8.8/",
    "https://08.8.8.8/",
    "https://example.0x/",
    "https://①②⑦.⓪.⓪.①/",
    "https://\uff11\uff12\uff17.0.0.1/",
    "https://127。0。0。1/",
    "https://127%2E0%2E0%2E1/",
    "https://127.0.0.1%00.example.com/",
    "https://%6c%6f%63alhost/",
    # who is asked, and who only seems to be
    "https://good@127.0.0.1/",
    "https://good.example@8.8.8.8/",
    "https://user:password@example.com/",
    "https://@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com\\.evil.com/",
    "https://example.com#@127.0.0.1/",
    "https://example.com/#fragment",
    "https://exa mple.com/",
    "https://example.com/\r\nX-Injected: yes",
    "https://127.0.0.1\t/",
    "\thttps://example.com/",
    "https://example.com/ ",
    "https://exam\x00ple.com/",
    # what is no web address at all
    "http://example.com/",
    "HTTP://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "//example.com/",
    "example.com",
    "https:example.com",
    "https:/example.com",
    "https:///example.com",
    "https://",
    "https://:443/",
    "https://[1:2/",
    "https://[v1.x]/",
    "https://a..b/",
    "https://.example.com/",
    "https://example.com../",
    "https://-example.com/",
    "https://*.example.com/",
    f"https://{'a' * 64}.example.com/",
    f"https://{'a.' * 127}example.com/",
    f"https://example.com/{'a' * MAX_LENGTH}",
    "",
    # ports of other protocols
    "https://example.com:0/",
    "https://example.com:22/",
    "https://example.com:25/",
    "https://example.com:1023/",
    "https://example.com:65536/",
    "https://example.com:-1/",
    "https://example.com:80:443/",
    "https://example.com:http/",
]


@pytest.mark.proves("B-18")
@each("url", HOSTILE)
def test_hostile_addresses_are_refused(url: str) -> None:
    with pytest.raises(TargetRefused):
        STRICT.target(url)


@each(
    ("url", "host"),
    [
        ("https://example.com/hook?a=b%20c", "example.com"),
        ("HTTPS://Example.COM", "example.com"),
        ("https://example.com.", "example.com"),
        ("https://example.com:443/", "example.com"),
        ("https://example.com:80/", "example.com"),
        ("https://example.com:1024/", "example.com"),
        ("https://example.com:65535/", "example.com"),
        ("https://münchen.example/", "xn--mnchen-3ya.example"),
        ("https://a_b.example.com/", "a_b.example.com"),
        ("https://intranet/", "intranet"),
        ("https://8.8.8.8/", "8.8.8.8"),
        ("https://[2606:4700:4700::1111]/", "2606:4700:4700::1111"),
        ("https://[::ffff:8.8.8.8]/", "::ffff:808:808"),
        ("https://127.0.0.1.example.com/", "127.0.0.1.example.com"),
        ("https://example.com/a@b?c@d", "example.com"),
    ],
)
def test_public_addresses_are_allowed(url: str, host: str) -> None:
    target = STRICT.target(url)
    assert (target.url.raw_host, target.url.scheme, target.is_trusted) == (host, "https", False)


@pytest.mark.proves("B-18")
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/x", "http://localhost/", "https://10.0.0.1:25/", "http://[::1]/", "http://a.b/"]
)
def test_development_allows_private_addresses(url: str) -> None:
    assert Policy(allow_private=True).target(url).is_trusted


@each(
    "url",
    [
        "http://169.254.169.254/",
        "http://[fd00:ec2::254]/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://user@127.0.0.1/",
        "ftp://127.0.0.1/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1/#x",
    ],
)
def test_development_opens_nothing_else(url: str) -> None:
    with pytest.raises(TargetRefused):
        Policy(allow_private=True).target(url)


@pytest.mark.proves("B-18")
def test_the_operator_may_trust_single_hosts() -> None:
    hosts = frozenset({"hooks.internal", "*.svc.cluster.local", "10.1.2.3", "[::1]", "Upper.Example."})
    policy = Policy(allow_hosts=hosts)
    for url in (
        "http://hooks.internal:81/",
        "http://HOOKS.internal./",
        "http://a.svc.cluster.local/",
        "http://b.a.svc.cluster.local/",
        "http://10.1.2.3/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://upper.example/",
    ):
        assert policy.target(url).is_trusted, url
    for url in (
        "http://other.internal/",
        "http://hooks.internal.evil.com/",
        "http://svc.cluster.local/",
        "http://evilsvc.cluster.local/",
        "https://10.1.2.4/",
        "https://[::2]/",
    ):
        with pytest.raises(TargetRefused):
            policy.target(url)
    assert not policy.target("https://example.com/").is_trusted


def test_refusals_do_not_quote_secrets() -> None:
    with pytest.raises(TargetRefused) as refused:
        STRICT.target("https://user:s3cret@example.com/?key=s3cret")
    assert "s3cret" not in str(refused.value)


@given(st.text(max_size=60))
def test_every_target_is_refused_or_an_https_url(text: str) -> None:
    for url in (text, f"https://{text}", f"https://{text}/", f"https://example.com/{text}"):
        try:
            target = STRICT.target(url)
        except TargetRefused:
            continue
        assert target.url.scheme == "https"
        assert target.url.user is None
        assert (target.url.raw_host or "").isascii()
