"""How a job ended: rules over its records, its log and its black box."""
