"""The GPUs of a node, by the means that are there: NVML, nvidia-smi, AMD's sysfs."""
