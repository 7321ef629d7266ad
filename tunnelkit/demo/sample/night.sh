#!/bin/sh
#SBATCH --job-name=night --time=5 --mem=150M
python3 night.py
