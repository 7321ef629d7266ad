"""What `tk bugreport` takes out: nothing that was planted survives, and all else does."""

from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tunnelkit.session.report import patterns
from tunnelkit.session.report.scrub import Scrubber

_LETTERS = string.ascii_lowercase + string.digits
#: Words that pseudonyms and marks are made of: as a name they can't be told from those.
_OURS = re.compile(r"(?i)^(?:user|host|home|key|secret|removed|public|fingerprint|opaque)?\d*$")


def is_name(text: str) -> bool:
    """Whether a name could be told from our marks, and does not lie inside them."""
    marks = "user host home [secret] [removed] [public key] [fingerprint] [opaque]"
    common = text in patterns.COMMON or text.startswith("127.")
    return not _OURS.match(text) and text not in marks and not common and len(text) > 1


users = st.from_regex(r"[a-z][a-z0-9_-]{1,12}", fullmatch=True).filter(is_name)
labels = st.from_regex(r"[a-z][a-z0-9]{1,10}(-[a-z0-9]{1,4})?", fullmatch=True).filter(is_name)
hosts = st.one_of(
    labels,
    st.builds("{}.{}.example.org".format, labels, labels),
    st.builds("10.{}.{}.{}".format, *[st.integers(0, 255)] * 3),
)
words = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)
secrets = st.one_of(
    st.builds("AKIA{}".format, st.text(string.ascii_uppercase + string.digits, min_size=16)),
    st.builds("ghp_{}".format, words),
    st.builds("hf_{}".format, words),
    st.builds("glpat-{}".format, words),
    st.builds("sk-{}".format, words),
    st.builds("xoxb-{}".format, words),
    st.builds("eyJ{}.{}.{}".format, words, words, words),
)
passwords = st.text(string.ascii_letters + string.digits + "!#$%*+-.:@^_~", min_size=8).filter(
    lambda text: text not in "[removed] [secret]"
)
#: How a password or a token stands in a log.
settings_of = st.sampled_from(
    [
        "password={}",
        "password: {}",
        'export WANDB_API_KEY="{}"',
        "MY_SETTING={}",
        "--token {}",
        "--api-key={}",
        '{{"secret_token": "{}"}}',
        "Authorization: Bearer {}",
        "my_passwd = '{}'",
        "aws_secret_access_key = {}",
        "https://me:{}@example.com/x",
    ]
)
around = st.sampled_from(
    ["{}", "ssh: connect to {} port 22", "({})", "'{}'", "x\n{}\ny", "/data/{}/run", "a={};", "{}:"]
)
plain_passwords = st.text(string.ascii_letters + string.digits, min_size=8)


@given(
    st.lists(users, max_size=4),
    st.lists(hosts, max_size=4),
    st.data(),
)
@example(["alice"], ["alice.example.org"], None)
def test_no_planted_name_survives(known_users: list[str], known_hosts: list[str], data) -> None:
    homes = [f"/nfs/people/{user}" for user in known_users]
    scrubber = Scrubber(hosts=known_hosts, users=known_users, homes=homes)
    planted = [*known_users, *known_hosts, *homes]
    pieces = [f"INFO {one} is here: {one}" for one in planted]
    if data is not None:
        pieces += [data.draw(around).format(one) for one in planted]
        pieces += [one.upper() for one in planted]
    left = scrubber.text(" then ".join(pieces)).lower()
    for one in planted:
        assert not _stands_in(one, left), (one, left)


def _stands_in(name: str, text: str) -> bool:
    """Whether the name stands there as one; short ones may be parts of other words."""
    return re.search(rf"(?<![a-z0-9]){re.escape(name.lower())}(?![a-z0-9])", text) is not None


@given(st.lists(secrets, min_size=1, max_size=4), st.data())
def test_no_secret_of_a_known_form_survives(planted: list[str], data) -> None:
    text = "\n".join(data.draw(around).format(one) for one in planted)
    left = Scrubber().text(text)
    assert not [one for one in planted if one in left], left


@given(plain_passwords, settings_of)
@example("hunter2hunter2", "--token {}")
def test_no_password_survives_where_it_is_called_one(password: str, form: str) -> None:
    left = Scrubber().text(f"12:00 {form.format(password)} end")
    assert password not in left or password in form, left
    assert left.startswith("12:00 ")


@given(passwords, around)
def test_values_of_secret_variables_go_wherever_they_stand(password: str, form: str) -> None:
    assert password not in Scrubber(secrets=[password]).text(form.format(password))


@given(st.text(max_size=200))
def test_whatever_comes_in_nothing_is_raised(text: str) -> None:
    scrubber = Scrubber(hosts=["n1"], users=["me"], homes=["/home/me"], secrets=["abcd1234"])
    assert "abcd1234" not in scrubber.text(text + "abcd1234")


def test_the_same_name_is_the_same_pseudonym() -> None:
    scrubber = Scrubber(
        hosts=["login.hpc.example.org", "node7"], users=["alice"], homes=["/nfs/home/alice"]
    )
    one = scrubber.text("alice@login.hpc.example.org: node7 up, /nfs/home/alice/x, Alice")
    assert one == "user1@host1: host2 up, /home/home1/x, user1"
    assert scrubber.text("node7 login") == "host2 host3"
    assert scrubber.pseudonyms == {"user": 1, "host": 3, "home": 1}


def test_names_that_nobody_told_are_found_by_their_place() -> None:
    left = Scrubber().text(
        "bob@gate.uni-x.de /home/carol/x /Users/dave 192.168.3.4 fe80::1:2:3%eth0 "
        "ssh.somewhere.edu 127.0.0.1 12:31:05 1.2.3 train.py tunnelkit.session.daemon "
        "git@github.com"
    )
    for name in ("bob", "gate", "carol", "dave", "192.168", "fe80", "somewhere"):
        assert name not in left
    for kept in ("127.0.0.1", "12:31:05", "1.2.3", "train.py", "tunnelkit.session.daemon"):
        assert kept in left


def test_the_host_and_the_user_of_an_openshift_context_go() -> None:
    text = Scrubber().text(
        'context = "ml-team/api-prod-example-com:6443/kim", dev/api-x:6443/IAM#k, /api-x:6443/lee'
    )
    assert text.startswith('context = "ml-team/host1:6443/user1", dev/host2:6443/')
    assert "lee" not in text and "kim" not in text and "prod" not in text
    assert Scrubber().text("12:30:45/60, src/a-b:12: error") == "12:30:45/60, src/a-b:12: error"


def test_keys_go_whole_also_where_the_end_is_missing() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\nZXktdjEA\n"
    for text in (key + "-----END OPENSSH PRIVATE KEY-----\nafter", key):
        left = Scrubber().text(f"before\n{text}")
        assert "b3Blbn" not in left and "ZXkt" not in left and left.startswith("before")


def test_json_keeps_its_keys_and_its_form() -> None:
    scrubber = Scrubber(hosts=["login"], users=["alice"])
    value = {
        "login": "alice@login",
        "cluster.login": {"value": "login"},
        "api_token": "x",
        "list": ["login", 3, None],
    }
    left = scrubber.json(value)
    assert left == {
        "login": "user1@host1",
        "cluster.login": {"value": "host1"},
        "api_token": "[secret]",
        "list": ["host1", 3, None],
    }
    json.dumps(left)


def test_a_pseudonym_is_nobodys_real_name() -> None:
    scrubber = Scrubber(hosts=["host1", "other-host"], users=["user1"])
    left = scrubber.text("other-host host1 user1")
    assert "host1" not in left.split() and "user1" not in left.split()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["a", "aA0", "x.", "1:", "pass", "A=", "/home/", "-----BEGIN A-----"]
)
def test_long_texts_are_no_trouble(piece: str) -> None:
    """A program may print a megabyte without a space; no pattern may take its square."""
    nodes = [f"node{number}" for number in range(5000)]
    scrubber = Scrubber(hosts=["login", *nodes], users=["alice"])
    assert scrubber.text(piece * (1_000_000 // len(piece))).startswith("[a line of ")
    line = piece * (1_900 // len(piece))
    assert len(scrubber.text(f"{line}\n" * 10).splitlines()) <= 10
