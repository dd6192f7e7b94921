"""Why a step waits or failed, and what of a record may be shown."""
