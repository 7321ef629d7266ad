"""Slurm's pending reasons that name a limit: of an association (account, user) or of a QOS.

They are about 180 words with one grammar, `QOSMaxGRESPerUser`, `AssocGrpCPUMinutesLimit`: whose
limit, on what, of which jobs. Source: job_state_reason.c and acct_policy.c of Slurm, where each
word is set beside the limit that was compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(
    r"(?P<owner>Assoc|QOS)?(?P<group>Grp|Max|Min)"
    r"(?P<what>Cpus?|Mem(?:ory)?|Nodes?|GRES|License|BB|Billing|Energy|Unknown|SubmitJobs?|Jobs?"
    r"|WallDuration|Wall)"
    r"(?P<minutes>RunMinutes|RunMins|Minutes|Mins)?"
    r"(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?",
    re.IGNORECASE,
)

#: (group, what, minutes, per) -> the limit's name in `scontrol show assoc_mgr`. what: "tres" for
#: anything that is counted.
_FIELDS = {
    ("grp", "tres", "", ""): "GrpTRES",
    ("grp", "tres", "mins", ""): "GrpTRESMins",
    ("grp", "tres", "runmins", ""): "GrpTRESRunMins",
    ("grp", "jobs", "", ""): "GrpJobs",
    ("grp", "submit", "", ""): "GrpSubmitJobs",
    ("grp", "wall", "", ""): "GrpWall",
    ("max", "tres", "", "job"): "MaxTRESPJ",
    ("max", "tres", "", "node"): "MaxTRESPN",
    ("max", "tres", "mins", "job"): "MaxTRESMinsPJ",
    ("max", "wall", "", "job"): "MaxWallPJ",
    ("max", "jobs", "", ""): "MaxJobs",
    ("max", "submit", "", ""): "MaxSubmitJobs",
    ("max", "tres", "", "user"): "MaxTRESPU",
    ("max", "tres", "runmins", "user"): "MaxTRESRunMinsPU",
    ("max", "jobs", "", "user"): "MaxJobsPU",
    ("max", "submit", "", "user"): "MaxSubmitJobsPU",
    ("max", "tres", "", "account"): "MaxTRESPA",
    ("max", "tres", "runmins", "account"): "MaxTRESRunMinsPA",
    ("max", "jobs", "", "account"): "MaxJobsPA",
    ("max", "submit", "", "account"): "MaxSubmitJobsPA",
    ("min", "tres", "", ""): "MinTRESPJ",
}

_WHAT = {
    "cpu": ("CPUs", "CPU minutes"),
    "mem": ("memory", "memory minutes"),
    "node": ("nodes", "node minutes"),
    "gres": ("GPUs or other GRES", "GPU (GRES) minutes"),
    "license": ("licences", "licence minutes"),
    "bb": ("burst buffer space", "burst buffer minutes"),
    "billing": ("billing units", "billing minutes"),
    "energy": ("energy", "energy minutes"),
    "unknown": ("units of a counted resource", "minutes of a counted resource"),
    "jobs": ("jobs that run at once", ""),
    "submit": ("jobs that wait or run", ""),
    "wall": ("wall-clock time", "wall-clock minutes"),
}

_TOGETHER = "a limit on {what} for {jobs}: it starts when enough of them have ended"
_STILL_TO_RUN = "a limit on {what} still to run for {jobs}: it starts as they run on or end"
_BUDGET = (
    "the budget of {owner} is used up ({what} of all its jobs, past ones too): "
    "the end of other jobs does not free it"
)
_ONE_JOB = "it asks for more {what} than one job may have under {owner}"

#: The limit's name -> the code, and the sentence. "limit-": the owner's name follows.
_KINDS = {
    "GrpTRES": ("limit-", _TOGETHER),
    "GrpTRESMins": ("budget", _BUDGET),
    "GrpTRESRunMins": ("limit-", _STILL_TO_RUN),
    "GrpJobs": ("limit-", _TOGETHER),
    "GrpSubmitJobs": ("limit-", _TOGETHER),
    "GrpWall": ("budget", _BUDGET),
    "MaxTRESPJ": ("limit-job", _ONE_JOB),
    "MaxTRESPN": ("limit-job", "it asks for more {what} on a node than {owner} allows"),
    "MaxTRESMinsPJ": (
        "limit-job",
        "it asks for more {what} (times its time limit) than one job may have under {owner}",
    ),
    "MaxWallPJ": ("limit-job", "its time limit is longer than one job may have under {owner}"),
    "MaxJobs": ("limit-user", _TOGETHER),
    "MaxSubmitJobs": ("limit-user", _TOGETHER),
    "MaxTRESPU": ("limit-user", _TOGETHER),
    "MaxTRESRunMinsPU": ("limit-user", _STILL_TO_RUN),
    "MaxJobsPU": ("limit-user", _TOGETHER),
    "MaxSubmitJobsPU": ("limit-user", _TOGETHER),
    "MaxTRESPA": ("limit-account", _TOGETHER),
    "MaxTRESRunMinsPA": ("limit-account", _STILL_TO_RUN),
    "MaxJobsPA": ("limit-account", _TOGETHER),
    "MaxSubmitJobsPA": ("limit-account", _TOGETHER),
    "MinTRESPJ": ("limit-job", "it asks for less than the least that {owner} demands: {what}"),
}


@dataclass(frozen=True, slots=True)
class LimitWord:
    """A limit that a reason names.

    owner: "account" (Slurm's association) or "QOS". field: the limit's name in `scontrol show
    assoc_mgr`. what: "cpu", "mem", "node", "gres", "license", "bb", "billing", "energy",
    "unknown", "jobs", "submit" or "wall".
    """

    owner: str
    field: str
    what: str

    @property
    def code(self) -> str:
        """The verdict's code."""
        code, _ = _KINDS[self.field]
        return f"limit-{self.owner.lower()}" if code == "limit-" else code

    @property
    def sentence(self) -> str:
        """What is the matter, without the job's name."""
        _, form = _KINDS[self.field]
        return form.format(owner=f"the {self.owner}", jobs=self.jobs, what=self.what_in_words)

    @property
    def jobs(self) -> str:
        """The jobs that the limit counts together."""
        if self.field.endswith("PU"):
            return f"your jobs in the {self.owner}"
        if self.field.endswith("PA"):
            return f"the jobs of your account in the {self.owner}"
        if self.field in ("MaxJobs", "MaxSubmitJobs"):
            return "your jobs in the account"
        if self.owner == "account":  # its association may be the user's own in it
            return "the jobs of your account, or yours in it"
        return "all jobs of the QOS"

    @property
    def what_in_words(self) -> str:
        """What is counted."""
        amount, minutes = _WHAT[self.what]
        return minutes if "Mins" in self.field or self.field == "GrpWall" else amount


def limit_word(word: str) -> LimitWord | None:
    """Return the limit that a reason's word names; None if it names none."""
    match = _WORD.fullmatch(word)
    if match is None:
        return None
    what = _what(match["what"].lower())
    minutes = (match["minutes"] or "").lower().replace("minutes", "mins")
    counted = what if what in ("jobs", "submit", "wall") else "tres"
    key = (match["group"].lower(), counted, minutes, (match["per"] or "").lower())
    field = _FIELDS.get(key)
    if field is None:
        return None
    # Limits for each user or account are a QOS's; their words often leave it out.
    if match["owner"] is None and match["per"] is None:
        return None
    of_qos = match["owner"] is None or match["owner"].lower() == "qos"
    return LimitWord("QOS" if of_qos else "account", field, what)


def _what(text: str) -> str:
    for begin, what in (("submit", "submit"), ("job", "jobs"), ("wall", "wall")):
        if text.startswith(begin):
            return what
    return next(name for name in _WHAT if text.startswith(name))


#: A TRES as `scontrol show assoc_mgr` names it -> the word for it in a reason.
_TRES = {"gres": "gres", "license": "license", "bb": "bb"}


def counts(word: LimitWord, name: str, what: str) -> bool:
    """True if a limit of `scontrol show assoc_mgr` may be the one of the reason.

    name: such as GrpTRES. what: the TRES (`cpu`, `gres/gpu`), or "jobs", "submit", "wall"."""
    if name != word.field:
        return False
    begin = what.partition("/")[0]
    return word.what in ("unknown", _TRES.get(begin, what))
