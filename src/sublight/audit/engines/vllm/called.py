"""What another library asks of the card for the backend that a kernel class of vLLM's names when it calls it.

A class asks less of the card than the function behind it may: `mm_fp4(..., backend="trtllm")` takes fewer cards than
`has_flashinfer()`, which is all that the class looks at.
"""

from sublight.audit.engines.base import Gate
from sublight.audit.engines.flashinfer.gates import gates as of_flashinfer
from sublight.audit.engines.vllm.walk import Walk
from sublight.audit.source import objects
from sublight.audit.source.cards import Capability
from sublight.audit.source.values import Bound, Class, Function, Instance, Unknown, Value

APPLY = "apply_weights"
_LIBRARY = "flashinfer"


def gates(walk: Walk, cls: Class, here: Capability) -> tuple[Gate, ...]:
    """Gates of each product that the class certainly calls, for the backend named in that call."""
    if _LIBRARY not in walk.sources.roots:
        return ()
    _, found = objects.find(walk.evaluator, cls, APPLY)
    function = found.function if isinstance(found, Bound) else found
    if not isinstance(function, Function):
        return ()
    given: list[Value] = [Unknown(item.arg) for item in function.node.args.args[1:]]
    outcome = walk.evaluator.call_method(Instance(cls, {}, True), APPLY, given)
    named = {
        (event.name, str(event.value["backend"])): None
        for event in outcome.of("call")
        if event.certain and event.name.startswith(f"{_LIBRARY}.")
        if isinstance(event.value, dict) and event.value.get("backend")
    }
    found_gates = (gate for name, backend in named for gate in of_flashinfer(walk.sources, name, here, backend))
    return tuple(dict.fromkeys(found_gates))
