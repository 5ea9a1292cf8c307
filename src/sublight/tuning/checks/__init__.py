"""One file a family of knobs. `CHECKS` is the only list of them; other packages add theirs by the entry-point group."""

from sublight.registry import Registry

CHECKS = Registry(
    "host check",
    "sublight.host_checks",
    {
        "peer-access": "sublight.tuning.checks.peer_access:CHECK",
        "acs": "sublight.tuning.checks.acs:CHECK",
        "iommu": "sublight.tuning.checks.iommu:CHECK",
        "collectives": "sublight.tuning.checks.collectives:CHECK",
        "link": "sublight.tuning.checks.link:CHECK",
        "switches": "sublight.tuning.checks.switches:CHECK",
        "port-power": "sublight.tuning.checks.port_power:CHECK",
        "payload": "sublight.tuning.checks.payload:CHECK",
        "bar": "sublight.tuning.checks.bar:CHECK",
        "power": "sublight.tuning.checks.power:CHECK",
        "persistence": "sublight.tuning.checks.persistence:CHECK",
        "memory": "sublight.tuning.checks.memory:CHECK",
        "numa": "sublight.tuning.checks.numa:CHECK",
        "governor": "sublight.tuning.checks.governor:CHECK",
        "idle-states": "sublight.tuning.checks.idle_states:CHECK",
        "pages": "sublight.tuning.checks.pages:CHECK",
        "scheduler": "sublight.tuning.checks.scheduler:CHECK",
        "kernel": "sublight.tuning.checks.kernel:CHECK",
        "driver": "sublight.tuning.checks.driver:CHECK",
        "environment": "sublight.tuning.checks.environment:CHECK",
    },
)
