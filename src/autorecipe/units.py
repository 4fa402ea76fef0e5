"""Unit constants and text forms. GiB (2**30) and GB (10**9) are different things and are never mixed."""

GIB = 2**30
MIB = 2**20
GB = 10**9
TFLOP = 10**12

MOST_GPUS = 1_000_000
"""GPUs that a question may have (assumed: no cluster has more); a larger number is a slip, and searching it would not end."""


def render_gib(num_bytes: float) -> str:
    """Render a byte count as GiB with one decimal, such as `61.4 GiB`."""
    return f"{num_bytes / GIB:.1f} GiB"


def render_count(value: float) -> str:
    """Render a large count with a decimal suffix, such as `8.03B` or `131K`."""
    for limit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:g}"
