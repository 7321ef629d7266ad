"""The grammar of Slurm's generic resources that several readers share.

Source: man sbatch, --gres: `name[[:type]:count]`.
"""

#: A type may begin with a digit (2080ti, 1g.10gb), or be all digits before a count (3090). In
#: linear time: a login host decides what is read.
GPU_TYPE = r"(?![0-9]+$)[\w.-]+"
