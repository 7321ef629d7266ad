"""The path of a log as it was asked for: `sbatch -o logs/%x-%j.out train.sh`, `#SBATCH -o ...`.

Only for a job that Slurm has forgotten: its accounting keeps these lines, and no path.
"""

from __future__ import annotations

#: awk: on stdin lines whose first word is `sbatch` or `#SBATCH`; the last one that has the option
#: wins. short, long: the option; id, name, user, directory: of the job. Prints the path; nothing if
#: the option is not there, or has a field that is not known any more (%N, %5j). The options end at
#: the script.
AWK = r"""
function expanded(text,   at, out, rest, letter, base, task) {
  base = id; sub(/_.*/, "", base); task = id; if (!sub(/.*_/, "", task)) task = 0
  out = ""; rest = text
  while ((at = index(rest, "%")) > 0) {
    out = out substr(rest, 1, at - 1)
    rest = substr(rest, at + 1)
    letter = substr(rest, 1, 1); rest = substr(rest, 2)
    if (letter == "%") out = out "%"
    else if (letter == "j" && index(id, "_") == 0) out = out base
    else if (letter == "A") out = out base
    else if (letter == "a") out = out task
    else if (letter == "x") out = out name
    else if (letter == "u") out = out user
    else return ""
  }
  return out rest
}
function takes(option) {
  if (option ~ /^-[HkOQsvW]$/) return 0
  if (option ~ /^--(contiguous|exclusive|hold|no-kill|no-requeue|overcommit)$/) return 0
  if (option ~ /^--(oversubscribe|parsable|quiet|requeue|spread-job|test-only)$/) return 0
  if (option ~ /^--(use-min-nodes|verbose|wait)$/) return 0
  return option ~ /^-[^-]$/ || option ~ /^--[^=]+$/
}
{
  for (at = 2; at <= NF; at++) {
    word = $at
    if (word == short || word == long) { value = $(at + 1); at++ }
    else if (index(word, long "=") == 1) value = substr(word, length(long) + 2)
    else if (index(word, short) == 1 && index(word, "--") != 1) value = substr(word, 3)
    else if (index(word, "-") != 1 && !takes($(at - 1))) break
  }
}
END {
  if (value == "" || value == "none") exit
  path = expanded(value)
  if (path == "") exit
  if (index(path, "/") != 1) path = directory "/" path
  print path
}
"""
