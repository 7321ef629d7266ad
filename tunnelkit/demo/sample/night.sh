#!/bin/sh
#SBATCH --job-name=night --time=5
python3 night.py
