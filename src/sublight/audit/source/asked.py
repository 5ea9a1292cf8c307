"""Strings that remember what was asked of them, so that another string can tell whether it would answer the same.

A walk that is given a name as an `Asked` does what it does with a plain string. Afterwards its questions are all that
the walk knew of the name: whether it equals "triton", begins with "flashinfer", is one of a set. Another name that
answers every one of them the same way is walked in the very same way, apart from being carried along itself.

Python's own functions look into a string without asking it, so whoever hands a constant to them asks for all of it
first (`whole`): `operators.known` does, by which every constant goes that is computed with.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

Question = tuple[Callable[..., Any], tuple[Any, ...]]  # what was asked, with which arguments
Questions = dict[Question, Any]  # -> the answer


class Asked(str):
    """A string with the questions it was asked, each with its answer."""

    __slots__ = ("heard", "questions")
    questions: Questions
    heard: Callable[[Question], None] | None  # is told of every question when it is first asked

    def __new__(cls, text: str) -> "Asked":
        made = super().__new__(cls, text)
        made.questions, made.heard = {}, None
        return made

    @property
    def text(self) -> str:
        """The string as a plain one, without asking anything."""
        return str.__str__(self)

    def whole(self) -> str:
        """The plain string, for whoever may look at all of it: only an equal one would have been the same."""
        return self._ask(operator.eq, self.text) and self.text

    def among(self, texts: Iterable[str]) -> bool:
        """Whether it is one of these; which one is not asked."""
        return bool(self._ask(_among, frozenset(texts)))

    def _ask(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        answer = ask(self.text, *arguments)
        if (ask, arguments) not in self.questions:
            self.questions[ask, arguments] = answer
            if self.heard is not None:
                self.heard((ask, arguments))
        return answer

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return bool(self._ask(operator.eq, exact(other))) if isinstance(other, str) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.whole())

    def __bool__(self) -> bool:
        return bool(self._ask(bool))

    def __len__(self) -> int:
        return int(self._ask(len))

    def __contains__(self, part: object) -> bool:
        return bool(self._ask(operator.contains, part))

    def startswith(self, *arguments: Any) -> bool:
        return bool(self._ask(str.startswith, *arguments))

    def endswith(self, *arguments: Any) -> bool:
        return bool(self._ask(str.endswith, *arguments))

    def __radd__(self, other: str) -> str:
        return other + self.whole()


def _among(text: str, texts: frozenset[str]) -> bool:
    return text in texts


def answers_alike(text: str, questions: Questions) -> bool:
    """Whether a string answers these questions in the same way."""
    return all(ask(text, *arguments) == answer for (ask, arguments), answer in questions.items())


def _told_all(name: str) -> Callable[..., Any]:
    plain = getattr(str, name)

    def method(self: Asked, *arguments: Any, **keywords: Any) -> Any:
        return plain(self.whole(), *arguments, **keywords)

    method.__name__ = name
    return method


# What is not asked above looks at all of the string.
_LOOKING = frozenset(("__str__", "__repr__", "__format__", "__lt__", "__le__", "__gt__", "__ge__"))
_OWN = frozenset(vars(Asked)) | (frozenset(dir(object)) - _LOOKING) | {"maketrans"}
for _name in frozenset(dir(str)) - _OWN:
    setattr(Asked, _name, _told_all(_name))


def exact(value: Any) -> Any:
    """The value for Python's own functions: a plain string for one that is asked, which is asked for all of it."""
    return value.whole() if value.__class__ is Asked else value


def key_of(keys: Iterable[Any], wanted: Any) -> Any:
    """The key that equals a string, None when there is none; asked one by one, where hashing would ask for all."""
    return next((key for key in keys if isinstance(key, str) and wanted == key), None)
