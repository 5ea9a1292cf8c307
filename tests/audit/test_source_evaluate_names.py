"""What the evaluator makes of names: in which scope, in which order, and after a walk that was given up."""

from pathlib import Path

from sublight.audit.source.values import Instance
from tests.audit.test_source_evaluate import walk


def test_a_methods_default_sees_the_names_of_its_class(tmp_path: Path) -> None:
    text = """
        MOST = 1

        class Ring:
            MOST = 8
            if MOST > 4:
                MOST = 16

            def __init__(self, most=MOST, *, least=MOST):
                self.most, self.least = most, least
        """
    made = walk(tmp_path, {"engine/ring.py": text}).call_name("engine.ring.Ring").value
    assert isinstance(made, Instance)
    assert (made.attributes["most"], made.attributes["least"]) == (16, 16)


def test_a_named_tuple_with_some_fields_replaced(tmp_path: Path) -> None:
    text = """
        from typing import NamedTuple

        class Sizes(NamedTuple):
            push: int
            pull: int = 4

        def work():
            first = Sizes(2)
            then = first._replace(pull=first.push * 8)
            return first.pull, then.push, then.pull
        """
    assert walk(tmp_path, {"engine/sizes.py": text}).call_name("engine.sizes.work").value == (4, 2, 16)


def test_fields_of_the_class_are_none_of_the_constructor(tmp_path: Path) -> None:
    text = """
        import dataclasses
        import typing
        from typing import ClassVar

        @dataclasses.dataclass
        class Config:
            kind: ClassVar[str] = "a"
            sort: typing.ClassVar = "b"
            name: "ClassVar[int]" = 3
            size: int = 1

        def work():
            return Config(7).size
        """
    assert walk(tmp_path, {"engine/config.py": text}).call_name("engine.config.work").value == 7


def test_what_a_condition_at_module_level_binds_is_not_undone_by_what_stands_before_it(tmp_path: Path) -> None:
    text = """
        library = None
        lost = False
        try:
            import vendor.comm as found

            if hasattr(found, "sum"):
                library = found
            else:
                lost = True
        except ImportError:
            lost = True

        def work():
            return lost, library is None
        """
    assert walk(tmp_path, {"engine/comm.py": text}).call_name("engine.comm.work").value == (False, False)


def test_a_walk_that_is_given_up_leaves_no_condition_behind(tmp_path: Path) -> None:
    text = """
        import vendor

        def endless():
            if vendor.unknown():
                for a in range(2000):
                    for b in range(2000):
                        vendor.step(a, b)

        def plain():
            vendor.done()
        """
    e = walk(tmp_path, {"engine/loop.py": text}, steps_at_most=5_000)
    assert e.call_name("engine.loop.endless").gave_up == "more than 5000 steps"
    e.steps = 0
    done = e.call_name("engine.loop.plain")
    assert [(event.name, event.certain) for event in done.of("call") if event.name == "vendor.done"] == [
        ("vendor.done", True)
    ]
