"""From what a trial gave to the rungs "executed", "correct" and "fast".

| rung | yes | no |
|---|---|---|
| executed | a call of one token gives finite values of the right shape | it raises, hangs, or ends its process |
| correct | near the fp32 oracle, eager and in a CUDA graph, at every number of tokens | it is not, or breaks |
| fast | at every number of tokens a quarter as fast as one launch that only reads as much | it is slower |

An adapter that nobody has seen agreeing on a GPU proves a yes and never a no: what goes wrong may be its own fault.

A quarter: on one H200 kernels that decode four-bit weights as they read them came to 28 % at one token and 40 to 60 %
at more, ones that read them several times to 12 to 22 %. What is in the way on our side, or the machine's, is "not
known".
"""

from sublight.audit.ladder import Answer, Proof, Rung, Step, failed, passed, unknown
from sublight.facts.gpu import get_gpu
from sublight.trials.job import Outcome, Timed, in_words
from sublight.units import counted, show_percent, show_rate, show_time

FAST_SHARE = 0.25
_NOTHING_RAN = "nothing ran that could be compared"
_OTHER = "another backend"


def steps(outcome: Outcome, gpu: str, proof: Proof, busy: str, *, confirmed: bool) -> tuple[Step, Step, Step]:
    """The three rungs.

    Args:
        gpu: the catalogue's name of the card, whose data sheet has the bandwidth.
        proof: what was called, where, with which versions.
        busy: why no time was taken, "" where one was.
        confirmed: whether the adapter has agreed on a GPU before. Of one that has not, every "no" is "not known".
    """
    found = _steps(outcome, gpu, proof, busy)
    return found if confirmed else tuple(_unsure(step) for step in found)  # type: ignore[return-value]


def _unsure(step: Step) -> Step:
    if step.answer is not Answer.FAIL or step.rung is Rung.FAST:  # slow and right is slow whoever calls it
        return step
    why = f"Sublight's way to call it was never seen to agree on a GPU, so this may be its own fault: {step.why}"
    return unknown(step.rung, why, *step.proofs, hint=step.hint)


def _steps(outcome: Outcome, gpu: str, proof: Proof, busy: str) -> tuple[Step, Step, Step]:
    executed = _executed(outcome, proof)
    if outcome.executed is None:
        return executed, unknown(Rung.CORRECT, _NOTHING_RAN), unknown(Rung.FAST, _NOTHING_RAN)
    correct = _correct(outcome, proof)
    if outcome.differs is not None or (outcome.ended and not _was_timing(outcome)):
        return executed, correct, unknown(Rung.FAST, "no time without agreement")
    return executed, correct, _fast(outcome, gpu, proof, busy)


def _executed(outcome: Outcome, proof: Proof) -> Step:
    if outcome.executed is not None:
        took = show_time(outcome.executed.prepare_s)
        return passed(
            Rung.EXECUTED,
            f"a call with {in_words(outcome.executed.tokens)} gave finite values of the right shape "
            f"(loaded, prepared and called in {took})",
            proof,
        )
    if outcome.not_tried is not None:
        return unknown(Rung.EXECUTED, f"not tried: {outcome.not_tried.reason}", proof, hint=outcome.not_tried.hint)
    if outcome.broke:
        doing = f"{outcome.now.what}: " if outcome.now is not None else ""
        return failed(Rung.EXECUTED, doing + outcome.broke, proof, hint=_OTHER)
    if outcome.now is None or not outcome.now.backends:
        doing = f", {outcome.now.what}" if outcome.now is not None else ", before it began"
        return unknown(Rung.EXECUTED, f"not tried: {outcome.ended}{doing}", proof, hint=_longer(outcome))
    return failed(Rung.EXECUTED, f"{outcome.now.what}: {outcome.ended}", proof, hint=_longer(outcome) or _OTHER)


def _longer(outcome: Outcome) -> str:
    return "--try-limit with more seconds, if it only compiles" if outcome.hung else ""


def _correct(outcome: Outcome, proof: Proof) -> Step:
    agreed = ", ".join(str(one.tokens) for one in outcome.compared)
    so_far = f"; it agrees at {agreed}" if agreed else ""
    if outcome.differs is not None:
        why = f"at {in_words(outcome.differs.tokens)}: {outcome.differs.reason}{so_far}"
        return failed(Rung.CORRECT, why, proof, hint=_OTHER)
    if outcome.ended and not _was_timing(outcome):
        assert outcome.now is not None
        why = f"{outcome.now.what}: {outcome.ended}{so_far}"
        return failed(Rung.CORRECT, why, proof, hint=_longer(outcome) or _OTHER)
    worst = max(outcome.compared, key=lambda one: one.agreed.relative_error)
    modes = " and ".join({"eager": "eager", "graph": "in a CUDA graph"}[mode] for mode in worst.agreed.modes)
    return passed(
        Rung.CORRECT,
        f"relative error {worst.agreed.relative_error:.2g} at the most, {worst.agreed.tolerance:.2g} allowed, against "
        f"the {worst.agreed.against}, {modes}, with {agreed} tokens",
        proof,
        Proof("trial", worst.agreed.where, f"{sum(one.agreed.runs for one in outcome.compared)} results compared"),
    )


def _was_timing(outcome: Outcome) -> bool:
    return outcome.now is not None and outcome.now.what.startswith(("timing", "measuring"))


def _fast(outcome: Outcome, gpu: str, proof: Proof, busy: str) -> Step:
    reason = busy or outcome.not_timed
    if outcome.environment is not None and outcome.environment.is_rehearsal:
        reason = "a rehearsal on a CPU has no time of a GPU"
    if outcome.ended:
        assert outcome.now is not None
        reason = f"{outcome.now.what}: {outcome.ended}"
        if outcome.now.backends and not outcome.hung:
            return failed(Rung.FAST, reason, proof, hint=_OTHER)
    hot = [one.measurement.warning for one in outcome.timed if one.measurement.warning]
    if reason or hot or not outcome.timed:
        return unknown(Rung.FAST, f"not timed: {reason or ', '.join(hot) or 'no time was taken'}", proof)
    said = "; ".join(_figures(one, gpu) for one in outcome.timed)
    proofs = (proof, *(Proof("trial", f"{in_words(one.tokens)}", _protocol(one)) for one in outcome.timed))
    slowest = min(one.read_s / one.measurement.seconds for one in outcome.timed)
    if slowest < FAST_SHARE:
        why = f"{said}; below {show_percent(FAST_SHARE)} of one read-only launch"
        return failed(Rung.FAST, why, *proofs, hint="a backend that is made for such weights")
    why = f"{said}; at least {show_percent(FAST_SHARE)} of one read-only launch, which is the bar"
    return passed(Rung.FAST, why, *proofs)


def _figures(one: Timed, gpu: str) -> str:
    seconds = one.measurement.seconds
    rate = get_gpu(gpu).memory_bandwidth_bytes_per_s.value
    sheet = f"{show_percent(one.bytes / rate / seconds)} of the data sheet's limit, " if rate else ""
    return (
        f"{show_time(seconds)} at {in_words(one.tokens)} ({show_rate(one.bytes / seconds)}; {sheet}"
        f"{show_percent(one.read_s / seconds)} of one read-only launch here)"
    )


def _protocol(one: Timed) -> str:
    timing = one.measurement.timing
    kept = "" if one.measurement.cold is not False else "; part of its weights may lie in the cache"
    return (
        f"{one.measurement.clock}, {timing.rounds} rounds of {timing.calls} calls, quartiles {timing.spread:.1%} "
        f"apart, {counted(one.measurement.sets, 'set')} of weights in turn{kept}"
    )
