"""Whether a trace and a floor are of one step: of unlike things no ratio is a gap."""

from sublight.errors import UsageError
from sublight.facts.catalogue.gpus import card_names, cards_called
from sublight.limits.decode import DecodeLimit
from sublight.trace.analysis import Analysis
from sublight.trace.classify import Kind
from sublight.trace.padding import tokens_of
from sublight.trace.phases import Phase
from sublight.units import counted

_MIXING = (Kind.ATTENTION, Kind.STATE)


def refuse_other_card(limit: DecodeLimit, trace: Analysis) -> None:
    """Raises UsageError for a trace of another card: its times are no gap above the floor of this one.

    A trace that names no card, or one that the catalogue does not have, may be of any; so may a card that is described
    outside of the catalogue.
    """
    traced, gpu = trace.source.device, limit.gpu
    called = sorted(card.name for card in cards_called(traced)) if traced else []
    if called and gpu.name not in called and gpu.name in card_names():
        raise UsageError(
            f"--trace {trace.source.path} beside the floor of {gpu.name}",
            f"it was recorded on {traced} ({' or '.join(called)}), the floor is one of {gpu.title}",
            f"--gpus with {' or '.join(called)}, or a trace from {gpu.name}",
        )


def doubts_of(limit: DecodeLimit, trace: Analysis) -> tuple[str, ...]:
    """What says that a trace is of another step than the floor; empty where nothing does."""
    return tuple(filter(None, (_phase(trace), _tokens(limit, trace), _model(limit, trace))))


def _phase(trace: Analysis) -> str:
    if trace.step.phase is not Phase.PREFILL:
        return ""
    return "what was traced is prefill, and the floor is one of a decode step"


def _tokens(limit: DecodeLimit, trace: Analysis) -> str:
    work = limit.workload
    asked = work.sequences_per_rank * work.width
    ran = tokens_of(trace.kernels)
    if ran in (None, asked) or trace.step.phase is Phase.PREFILL:
        return ""
    found = f"{counted(ran or 0, 'token')} a step {'is' if ran == 1 else 'are'} traced, the floor is one of {asked:,}"
    why = ": another --batch" + (" or --draft" if work.speculation is not None else "")
    padded = trace.step.replayed and (ran or 0) > asked
    return found + why + (", or a captured graph that is larger than the batch" if padded else "")


def _model(limit: DecodeLimit, trace: Analysis) -> str:
    mixed = any(kernel.kind in _MIXING for kernel in trace.kernels)
    if not trace.unresolved or not mixed:
        return ""
    return f"it does not look like {limit.model.name} cut as asked: {trace.unresolved}"
