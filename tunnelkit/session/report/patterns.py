"""Patterns of secrets and names, for those that tk does not know. Data only."""

from __future__ import annotations

import re

_TELLING_WORD = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secrets?|tokens?|api[_.-]?keys?|access[_.-]?keys?|"
    r"private[_.-]?keys?|credentials?|authorization|cookies?|session[_.-]?(?:key|id)|otp|totp)"
)
_VALUE = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,;&\"']+)"
_BEFORE, _AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"

#: A key of a mapping (JSON, TOML) whose value is secret.
SECRET_KEY = re.compile(rf"(?i)(?:^|[^a-z]){_TELLING_WORD}(?:$|[^a-z])")
#: An environment variable whose value is removed wherever it stands.
SECRET_VARIABLE = re.compile(r"(?i)(?:key|token|secret|pass|pwd|cred|auth|cookie|otp)")

#: (pattern, replacement), applied in this order: specific patterns come first.
SECRETS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (
            r"-----BEGIN [A-Z0-9 ]{0,40}-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)",
            "[key]",
        ),
        (
            r"\b(?:sk-)?(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-[a-z0-9-]+)(?:@openssh\.com)?"
            r"\s+AAAA[0-9A-Za-z+/=]+",
            "[public key]",
        ),
        (r"\bAAAA[BCE][0-9A-Za-z+/]{20,}={0,2}", "[public key]"),
        (r"\bSHA256:[0-9A-Za-z+/]{20,}={0,2}", "[fingerprint]"),
        (r"(?i)\bMD5:(?:[0-9a-f]{2}:){15}[0-9a-f]{2}", "[fingerprint]"),
        (r"(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ABIA|ACCA)[0-9A-Z]{12,}", "[secret]"),
        (r"\b(?:gh[oprsu]_|github_pat_)[0-9A-Za-z_]{16,}", "[secret]"),
        (r"\b(?:glpat|gldt|glrt)-[0-9A-Za-z_-]{16,}", "[secret]"),
        (r"\b(?:hf|pypi|npm|dop_v1|sq0[a-z]{3})[_-][0-9A-Za-z_-]{16,}", "[secret]"),
        (r"\b(?:sk|pk|rk)[-_][0-9A-Za-z_-]{16,}", "[secret]"),
        (r"\bxox[a-z]-[0-9A-Za-z-]{10,}", "[secret]"),
        (r"\bAIza[0-9A-Za-z_-]{30,}", "[secret]"),
        (r"\beyJ[0-9A-Za-z_-]{8,}(?:\.[0-9A-Za-z_-]+){1,2}", "[secret]"),
        (r"(?i)\b(bearer|basic|negotiate)\s+[0-9A-Za-z._~+/=-]{8,}", r"\1 [secret]"),
        (r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^\s/@]+@", r"\1[secret]@"),
        # --password x, --token=x
        (
            rf"(?i)(?<!\S)(--?[a-z0-9-]{{0,40}}{_TELLING_WORD}[a-z0-9-]{{0,40}})[\s=]+{_VALUE}",
            r"\1 [secret]",
        ),
        # password: x, "api_key": "x", my_token = x
        (
            rf"(?i)([a-z0-9_.-]{{0,40}}{_TELLING_WORD}[a-z0-9_.-]{{0,40}}[\"']?\s*[:=]\s*){_VALUE}",
            r"\1[secret]",
        ),
        # values of the environment
        (rf"\b([A-Z][A-Z0-9_]{{2,}}=){_VALUE}", r"\1[removed]"),
        (
            r"(?<![A-Za-z0-9/+=])(?=\S{0,39}[0-9])(?=\S{0,39}[a-z])(?=\S{0,39}[A-Z])"
            r"[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![A-Za-z0-9/+=])",
            "[secret]",
        ),
        (
            rf"{_BEFORE}(?=[A-Za-z0-9_]*[0-9])(?=[A-Za-z0-9_]*[A-Za-z])[A-Za-z0-9_]{{32,}}=*"
            rf"{_AFTER}",
            "[opaque]",
        ),
    )
)

#: user@host; the groups are the user and the host.
USER_AT_HOST = re.compile(r"(?<![\w.@-])([\w.+-]{1,64})@([A-Za-z0-9][A-Za-z0-9.-]{0,252})")
#: A context that `oc login` makes: NAMESPACE/API-HOST:PORT/USER, the host with "-" for its dots.
OC_CONTEXT = re.compile(
    r"(?<![\w/.-])([a-z0-9-]{0,63}/)([a-z0-9][a-z0-9-]{0,252})(:\d{2,5}/)([\w.@:+-]{1,128})"
)
#: A path below a home directory; group 2 is the user.
HOME_OF = re.compile(r"(?<![\w/.])(/(?:home|Users|u|export/home|mnt/home|nfs/home)/)([\w.+-]+)")
#: Last labels by which a host name is recognised. None that is also a file name's suffix.
_TOP = (
    "com|org|net|edu|gov|mil|info|io|dev|cloud|ai|local|lan|internal|intern|corp|home|lab|hpc|"
    "cluster|example|invalid|test|ac|at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|gr|hu|ie|il|in|it|"
    "jp|kr|lt|lu|lv|mx|nl|no|nz|pl|pt|ro|ru|se|sg|si|sk|tr|tw|ua|uk|us|za"
)
FULL_NAME = re.compile(
    rf"(?i)(?<![\w.@/-])(?!tunnelkit\.)(?:[a-z0-9](?:[a-z0-9-]{{0,62}})\.)+(?:{_TOP})(?![\w-]|\.\w)"
)
IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_HEX = r"[0-9A-Fa-f]{1,4}"
IPV6 = re.compile(
    rf"(?<![\w:.])(?:(?:{_HEX}:){{4,7}}{_HEX}|(?:{_HEX}:){{1,6}}(?::{_HEX}){{1,6}}|"
    rf"(?:{_HEX}:){{2,7}}:)(?:%\w+)?(?![\w:])"
)

#: Names that are also common words: replaced only where they stand alone.
WORDS = frozenset(
    (
        *("admin", "administrator", "guest", "student", "users", "debian", "ubuntu"),
        *("bastion", "jump", "gateway", "frontend", "login", "head", "master", "server"),
        *("cluster", "compute", "worker", "laptop", "scheduler", "slurm", "torque"),
        *("python", "debug", "agent", "session", "mirror", "forward", "tunnelkit"),
    )
)
#: Names that are not replaced: they are the same everywhere.
COMMON = frozenset(
    ("", "localhost", "localhost.localdomain", "root", "nobody", "user", "host", "none", "auto")
)
EXAMPLE_HOSTS = frozenset(("github.com", "openssh.com"))
