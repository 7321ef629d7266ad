"""The programs of the stand-in for PBS (tests/support/pbs_standin): they answer as OpenPBS and
Torque do. Standard library only, since they run without site-packages."""
