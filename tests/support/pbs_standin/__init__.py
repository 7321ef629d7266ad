"""Programs that answer as OpenPBS 23.06 and Torque do, on a lab's login host.

`rig.install` puts qsub, qstat and the others (tests/support/pbs_programs) on the PATH there. They
replay a cluster's life from one state directory: a job waits, runs (its script is really started,
in a session of its own, with the environment that PBS gives), is killed at its walltime or by
qdel. What they print follows recorded answers of the real thing (tests/unit/scheduler/data).
"""
