"""Verdicts on ended jobs: rules over its records, its log and its black box."""
