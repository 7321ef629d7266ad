"""The whole story on this machine: a lab cluster, a job, F5, an edit, a cut, and an end.

Everything is done by the programs that a user would use: the real `tk`, run as a subprocess, on the
lab's real sshd and Slurm; only the editor is one of tk's own.
"""
