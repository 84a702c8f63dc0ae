"""Records for tests: plain ones with a few arguments, and hypothesis strategies for any."""

from __future__ import annotations

from hypothesis import strategies as st

from lbbsp.telemetry import DecisionRecord, EventRecord, IterationRecord, RunRecord

whole = st.integers(0, 2**53)
number = st.floats(allow_nan=False, allow_infinity=False)
measured = st.none() | number
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)

run_records = st.builds(
    RunRecord,
    run=text,
    version=text,
    rank=st.integers(0, 99),
    workers=st.integers(1, 100),
    global_batch_size=whole,
    policy=text,
    lag=whole,
    started_at=text,
    machine=st.dictionaries(text, text, max_size=3),
    mode=text,
    settings=st.dictionaries(text, plain, max_size=3),
    part=whole,
    schema=st.just(1),
)
iteration_records = st.builds(
    IterationRecord,
    rank=st.integers(0, 99),
    iteration=whole,
    epoch=whole,
    size=whole,
    total=whole,
    compute_s=measured,
    wait_s=measured,
    step_s=measured,
    input_s=measured,
    at_s=measured,
    loss=measured,
    cpu=measured,
    memory=measured,
)
decision_records = st.builds(
    DecisionRecord,
    iteration=whole,
    decided_at=whole,
    sizes=st.lists(whole, max_size=4),
    reason=text,
    detail=text,
    forecast_samples_per_s=st.lists(measured, max_size=4),
    spread_samples_per_s=st.lists(measured, max_size=4),
    forecast_error=st.lists(measured, max_size=4),
    expected_s=measured,
    expected_before_s=measured,
    moved=st.booleans(),
    fallbacks=whole,
    report_every=whole,
    proposed=st.none() | st.lists(whole, max_size=4),
    proposed_s=measured,
)
event_records = st.builds(EventRecord, name=text, rank=st.integers(0, 99), iteration=whole, detail=text, at_s=measured)
later_records = iteration_records | decision_records | event_records
records = run_records | later_records


def run_record(rank: int = 0, *, workers: int = 2, run: str = "test", started_at: str = "t0") -> RunRecord:
    return RunRecord(
        run=run,
        version="0.1.0",
        rank=rank,
        workers=workers,
        global_batch_size=64,
        policy="proportional",
        lag=1,
        started_at=started_at,
        machine={"platform": "test"},
    )


def iteration(
    rank: int = 0,
    k: int = 0,
    *,
    size: int = 32,
    total: int = 64,
    compute_s: float | None = 0.5,
    wait_s: float | None = 0.25,
    step_s: float | None = 1.0,
) -> IterationRecord:
    return IterationRecord(
        rank=rank,
        iteration=k,
        epoch=0,
        size=size,
        total=total,
        compute_s=compute_s,
        wait_s=wait_s,
        step_s=step_s,
        input_s=0.0,
        at_s=float(k),
    )


def event(detail: str = "", *, rank: int = 0, k: int = 0, name: str = "note") -> EventRecord:
    return EventRecord(name=name, rank=rank, iteration=k, detail=detail, at_s=0.0)


def decision(
    k: int = 1,
    sizes: tuple[int, ...] = (32, 32),
    *,
    error: tuple[float | None, ...] = (None, None),
    reason: str = "moved",
    fallbacks: int = 0,
) -> DecisionRecord:
    unknown: list[float | None] = [None] * len(sizes)
    return DecisionRecord(
        iteration=k,
        decided_at=k - 1,
        sizes=list(sizes),
        reason=reason,
        detail="because",
        forecast_samples_per_s=unknown,
        spread_samples_per_s=unknown,
        forecast_error=list(error),
        expected_s=None,
        expected_before_s=None,
        moved=reason == "moved",
        fallbacks=fallbacks,
    )
