"""What upstream enforces, and what it should: small rules over a resolved configuration and a cluster."""
